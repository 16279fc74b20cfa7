/* Stand-in for Bazel's singlejar: joins several jars and resources into one jar. */
import java.nio.file.Path;

/** The program that joins jars into one. */
public final class SingleJar {
    private SingleJar() {}

    /**
     * Runs the program.
     *
     * @param arguments the arguments of Bazel's singlejar; options about the packing are ignored
     * @throws Exception if the jar cannot be written
     */
    public static void main(String[] arguments) throws Exception {
        Options options = Options.parse(arguments);
        JarContent content = new JarContent();
        options.all("--deploy_manifest_lines").forEach(content::addToManifest);
        options.all("--main_class").forEach(name -> content.addToManifest("Main-Class: " + name));
        content.addResources(options.all("--resources"));
        content.addResources(options.all("--classpath_resources"));
        for (Path jar : options.paths("--sources")) {
            content.addJar(jar);
        }
        content.write(Path.of(options.first("--output", "")));
    }
}
