/* The command lines of Bazel's Java tools: `--name value...`, also from files given as `@FILE`. */
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The values of each option by its name, in the given order. */
record Options(Map<String, List<String>> values) {
    /** Start of the arguments for javac, which include dashes, up to the matching end. */
    private static final String FOR_JAVAC = "--javacopts";

    private static final String END = "--";

    static Options parse(String[] arguments) throws IOException {
        List<String> words = new ArrayList<>();
        for (String argument : arguments) {
            if (argument.startsWith("@")) {
                words.addAll(Files.readAllLines(Path.of(argument.substring(1))));
            } else {
                words.add(argument);
            }
        }
        Map<String, List<String>> values = new HashMap<>();
        String name = "";
        for (String word : words) {
            boolean isForJavac = name.equals(FOR_JAVAC);
            if (word.equals(END)) {
                name = "";
            } else if (word.startsWith("--") && !isForJavac) {
                name = word;
                values.computeIfAbsent(name, absent -> new ArrayList<>());
            } else {
                values.computeIfAbsent(name, absent -> new ArrayList<>()).add(word);
            }
        }
        return new Options(values);
    }

    List<String> all(String name) {
        return values.getOrDefault(name, List.of());
    }

    List<Path> paths(String name) {
        return all(name).stream().map(Path::of).toList();
    }

    /** Returns the first value of an option, or {@code otherwise}. */
    String first(String name, String otherwise) {
        return all(name).isEmpty() ? otherwise : all(name).get(0);
    }
}
