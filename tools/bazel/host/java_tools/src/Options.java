/* The command lines of Bazel's Java tools: `--name value...`, in files named by `@FILE` too. */
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Values by the name of their option, in the order given. */
record Options(Map<String, List<String>> values) {
    /** What stands between these two goes to javac, dashes and all. */
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

    /** The first value, or this one. */
    String first(String name, String otherwise) {
        return all(name).isEmpty() ? otherwise : all(name).get(0);
    }
}
