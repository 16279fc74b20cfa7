/*
 * Stand-in for the program by which Bazel compiles Java: it runs javac of its own JDK, with strict
 * dependencies, and writes a jar of the classes. A newer JDK compiles sources for a newer Java.
 */
import com.sun.source.util.JavacTask;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticListener;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/** The program that compiles the sources of one target into a jar. */
public final class JavaBuilder {
    /** Outputs that Bazel expects and that no stand-in reads. */
    private static final List<String> IGNORED_OUTPUTS =
            List.of("--output_deps_proto", "--output_manifest_proto");

    private static final List<String> IGNORED_JARS =
            List.of("--native_header_output", "--generated_sources_output");

    private static final String NEWER_JDK = "newer.jdk";

    private final Options options;
    private final Path work;

    private JavaBuilder(Options options, Path work) {
        this.options = options;
        this.work = work;
    }

    /**
     * Runs the program.
     *
     * @param arguments the arguments of Bazel's JavaBuilder
     * @throws Exception if the program cannot compile, except for faults of the sources
     */
    public static void main(String[] arguments) throws Exception {
        Options options = Options.parse(arguments);
        int release = release(options.all("--javacopts"));
        String newer = System.getProperty(NEWER_JDK, "");
        if (release > Runtime.version().feature() && !newer.isEmpty()) {
            System.exit(runOn(newer, arguments));
        }
        Path work = Files.createTempDirectory("java-builder");
        boolean isGood;
        try {
            isGood = new JavaBuilder(options, work).build(release);
        } finally {
            delete(work);
        }
        System.exit(isGood ? 0 : 1);
    }

    private static void delete(Path folder) throws IOException {
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
    }

    private static int release(List<String> forJavac) {
        int at = forJavac.lastIndexOf("--release");
        return at < 0 ? 0 : Integer.parseInt(forJavac.get(at + 1));
    }

    /** Runs this program on another JDK. */
    private static int runOn(String jdk, String[] arguments) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(Path.of(jdk, "bin", "java").toString());
        command.addAll(List.of("-cp", System.getProperty("java.class.path")));
        command.add(JavaBuilder.class.getName());
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).inheritIO().start().waitFor();
    }

    private boolean build(int release) throws IOException {
        if (release > Runtime.version().feature()) {
            String target = options.first("--target_label", "one target");
            System.err.println("No JDK " + release + " here: the jar of " + target + " is empty.");
        } else if (!compile()) {
            return false;
        }
        writeOutputs();
        return true;
    }

    private Path folder(String name) throws IOException {
        return Files.createDirectories(work.resolve(name));
    }

    private boolean compile() throws IOException {
        List<Path> sources = new ArrayList<>(options.paths("--sources"));
        for (Path jar : options.paths("--source_jars")) {
            unpackSources(jar, sources);
        }
        if (sources.isEmpty()) {
            return true;
        }
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        // Bytes that are not UTF-8 are no error of the task: only the listener receives them.
        AtomicBoolean isGood = new AtomicBoolean(true);
        DiagnosticListener<JavaFileObject> listener =
                found -> {
                    System.err.println(found);
                    if (found.getKind() == Diagnostic.Kind.ERROR) {
                        isGood.set(false);
                    }
                };
        try (StandardJavaFileManager files =
                compiler.getStandardFileManager(listener, null, StandardCharsets.UTF_8)) {
            Iterable<? extends JavaFileObject> units = files.getJavaFileObjectsFromPaths(sources);
            JavacTask task =
                    (JavacTask) compiler.getTask(null, files, listener, forJavac(), null, units);
            task.addTaskListener(new StrictDependencies(task, options));
            return task.call() && isGood.get();
        }
    }

    private void unpackSources(Path jar, List<Path> sources) throws IOException {
        try (ZipFile zip = new ZipFile(jar.toFile())) {
            for (ZipEntry entry : Collections.list(zip.entries())) {
                if (entry.getName().endsWith(".java")) {
                    Path file = folder("unpacked").resolve(entry.getName());
                    Files.createDirectories(file.getParent());
                    Files.copy(zip.getInputStream(entry), file);
                    sources.add(file);
                }
            }
        }
    }

    private List<String> forJavac() throws IOException {
        List<String> given = withoutLevels(options.all("--javacopts"));
        Stream<String> places =
                Stream.of(
                        "-d",
                        folder("classes").toString(),
                        "-classpath",
                        joined("--classpath", ":"));
        Stream<String> processors = Stream.of("-proc:none");
        if (!options.all("--processors").isEmpty()) {
            processors =
                    Stream.of(
                            "-processor",
                            joined("--processors", ","),
                            "-processorpath",
                            joined("--processorpath", ":"),
                            "-s",
                            folder("generated").toString());
        }
        return Stream.of(given.stream(), places, processors).flatMap(part -> part).toList();
    }

    private String joined(String name, String separator) {
        return options.all(name).stream().collect(Collectors.joining(separator));
    }

    /** A target's own {@code --release} takes precedence over the toolchain's levels. */
    private static List<String> withoutLevels(List<String> given) {
        if (!given.contains("--release")) {
            return given;
        }
        List<String> kept = new ArrayList<>(given);
        for (String level : List.of("-source", "--source", "-target", "--target")) {
            for (int at = kept.indexOf(level); at >= 0; at = kept.indexOf(level)) {
                kept.subList(at, at + 2).clear();
            }
        }
        return kept;
    }

    private void writeOutputs() throws IOException {
        JarContent content = new JarContent();
        content.addFolder(folder("classes"));
        content.addResources(options.all("--resources"));
        for (Path jar : options.paths("--output")) {
            content.write(jar);
        }
        for (String name : IGNORED_OUTPUTS) {
            for (Path file : options.paths(name)) {
                Files.write(file, new byte[0]);
            }
        }
        for (String name : IGNORED_JARS) {
            for (Path jar : options.paths(name)) {
                new JarContent().write(jar);
            }
        }
    }
}
