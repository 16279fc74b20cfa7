/* Proves that the tests are those of the list of behaviours of all languages. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

class BehaviourListTest {
    private static final Pattern NAME = Pattern.compile("(?m)^name = \"([a-z0-9_]+)\"$");
    private static final List<Class<?>> SUITES =
            List.of(
                    WriteBehavioursTest.class,
                    ConditionBehavioursTest.class,
                    SchemaBehavioursTest.class,
                    ReadBehavioursTest.class,
                    BatchBehavioursTest.class,
                    LifecycleBehavioursTest.class,
                    MemoryBehavioursTest.class,
                    EventBehavioursTest.class,
                    SelectBehavioursTest.class);

    @Test
    void everyBehaviourHasATestAndEveryTestIsABehaviour() throws IOException {
        Path list = Path.of(System.getProperty("forebay.root"), "proto/vectors/behaviours.toml");
        TreeSet<String> listed = new TreeSet<>();
        NAME.matcher(Files.readString(list)).results().forEach(name -> listed.add(name.group(1)));
        TreeSet<String> tested = new TreeSet<>();
        for (Class<?> suite : SUITES) {
            for (Method method : suite.getDeclaredMethods()) {
                if (method.isAnnotationPresent(Test.class)) {
                    assertTrue(tested.add(snake(method.getName())), method.getName());
                }
            }
        }
        assertEquals(listed, tested);
    }

    /** Converts {@code nonUtf8Key} to {@code non_utf8_key}. */
    private static String snake(String name) {
        return name.replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
    }
}
