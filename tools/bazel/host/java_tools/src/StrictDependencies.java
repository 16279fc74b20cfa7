/*
 * Strict dependencies: a target may name only the classes of the jars that it declares. The jars
 * that only its dependencies declare are on the class path as well, because javac needs them;
 * naming a class of such a jar is an error.
 */
import com.sun.source.tree.CompilationUnitTree;
import com.sun.source.tree.IdentifierTree;
import com.sun.source.tree.MemberSelectTree;
import com.sun.source.tree.Tree;
import com.sun.source.util.JavacTask;
import com.sun.source.util.TaskEvent;
import com.sun.source.util.TaskListener;
import com.sun.source.util.TreePath;
import com.sun.source.util.TreePathScanner;
import com.sun.source.util.Trees;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.jar.JarFile;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.lang.model.element.Element;
import javax.lang.model.element.TypeElement;
import javax.tools.Diagnostic;

/** A listener of javac that checks each analysed class for undeclared dependencies. */
final class StrictDependencies implements TaskListener {
    private static final String CLASS = ".class";
    private static final Pattern BUILT =
            Pattern.compile(".*/bin/(?<package>.*)/lib(?<name>[^/]+)\\.jar");
    private static final Pattern FETCHED =
            Pattern.compile("external/(?<repository>[^/]+)/(?<name>[^/]+)/[^/]+\\.jar");

    private final JavacTask javac;
    private final Trees trees;
    private final String target;
    /** The label of the jar, by each class of it that the target must not name. */
    private final Map<String, String> undeclared = new HashMap<>();

    private final Set<String> said = new HashSet<>();

    StrictDependencies(JavacTask javac, Options options) throws IOException {
        this.javac = javac;
        this.trees = Trees.instance(javac);
        this.target = options.first("--target_label", "this target");
        Set<Path> direct = new HashSet<>(options.paths("--direct_dependencies"));
        Set<String> seen = new HashSet<>();
        for (Path path : options.paths("--classpath")) {
            try (JarFile jar = new JarFile(path.toFile())) {
                String label = direct.contains(path) ? null : label(path);
                for (String name : classes(jar)) {
                    if (seen.add(name) && label != null) {
                        undeclared.put(name, label);
                    }
                }
            }
        }
    }

    private static List<String> classes(JarFile jar) {
        return jar.stream()
                .map(entry -> entry.getName())
                .filter(name -> name.endsWith(CLASS))
                .map(name -> name.substring(0, name.length() - CLASS.length()).replace('/', '.'))
                .toList();
    }

    /**
     * Returns the target of a jar, from its path: the form of Bazel's own jars, or the folders of
     * Maven's.
     */
    private static String label(Path jar) {
        Matcher built = BUILT.matcher(jar.toString());
        if (built.matches()) {
            return "//" + built.group("package") + ":" + built.group("name");
        }
        Matcher fetched = FETCHED.matcher(jar.toString());
        if (fetched.matches()) {
            return "@" + fetched.group("repository") + "//:" + fetched.group("name");
        }
        return jar.toString();
    }

    @Override
    public void finished(TaskEvent event) {
        if (event.getKind() != TaskEvent.Kind.ANALYZE || event.getTypeElement() == null) {
            return;
        }
        CompilationUnitTree unit = event.getCompilationUnit();
        Names names = new Names(unit);
        Tree type = trees.getTree(event.getTypeElement());
        if (type == null) {
            // The file that describes a package.
            names.scan(new TreePath(unit), null);
            return;
        }
        // Other classes of the file are not analysed yet, or are already transformed.
        unit.getImports().forEach(names::scanAlone);
        names.scanAlone(type);
    }

    /** A scanner that finds the types that a source names. */
    private final class Names extends TreePathScanner<Void, Void> {
        private final CompilationUnitTree unit;

        Names(CompilationUnitTree unit) {
            this.unit = unit;
        }

        void scanAlone(Tree tree) {
            scan(trees.getPath(unit, tree), null);
        }

        @Override
        public Void visitIdentifier(IdentifierTree tree, Void nothing) {
            check(tree);
            return super.visitIdentifier(tree, nothing);
        }

        @Override
        public Void visitMemberSelect(MemberSelectTree tree, Void nothing) {
            check(tree);
            return super.visitMemberSelect(tree, nothing);
        }

        private void check(Tree tree) {
            Element element = trees.getElement(getCurrentPath());
            if (!(element instanceof TypeElement type)) {
                return;
            }
            String name = javac.getElements().getBinaryName(type).toString();
            String label = undeclared.get(name);
            if (label != null && said.add(unit.getSourceFile().getName() + name)) {
                String problem = "[strict] %s comes from %s; fix: add that to the deps of %s";
                String message = problem.formatted(name, label, target);
                trees.printMessage(Diagnostic.Kind.ERROR, message, tree, unit);
            }
        }
    }
}
