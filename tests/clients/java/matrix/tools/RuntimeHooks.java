package matrix.tools;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * The shutdown hooks that a tool registered with the JVM itself instead of with Kafka's Exit. There is no public way to see
 * them: the JVM has to be started with {@code --add-opens java.base/java.lang=ALL-UNNAMED}.
 */
final class RuntimeHooks {
    private RuntimeHooks() {}

    /** Those made by threads of this group, no longer registered with the JVM. */
    static List<Thread> taken(ThreadGroup group) {
        List<Thread> taken = new ArrayList<>();
        for (Thread hook : registered()) {
            if (hook.getThreadGroup() == group && Runtime.getRuntime().removeShutdownHook(hook)) {
                taken.add(hook);
            }
        }
        return taken;
    }

    private static List<Thread> registered() {
        try {
            Class<?> owner = Class.forName("java.lang.ApplicationShutdownHooks");
            Field hooks = owner.getDeclaredField("hooks");
            hooks.setAccessible(true);
            synchronized (owner) {
                List<Thread> found = new ArrayList<>();
                ((Map<?, ?>) hooks.get(null)).keySet().forEach(hook -> found.add((Thread) hook));
                return found;
            }
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("this JVM keeps its shutdown hooks elsewhere", error);
        }
    }
}
