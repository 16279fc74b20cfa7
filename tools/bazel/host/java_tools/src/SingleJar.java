/* Stand-in for Bazel's singlejar: makes one jar of several, and of resources. */
import java.nio.file.Path;

/** The program. */
public final class SingleJar {
    private SingleJar() {}

    /**
     * Runs it.
     *
     * @param arguments those of Bazel's singlejar; what only changes the packing is not heard
     * @throws Exception whatever keeps it from writing the jar
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
