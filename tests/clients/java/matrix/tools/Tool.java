package matrix.tools;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** One run of one tool, on threads of a group of its own; the group is how a thread is known to belong to it. */
final class Tool {
    private static final URL[] CLASS_PATH = classPath();
    private static final int INTERRUPTED = 143;

    final ByteArrayOutputStream out = new ByteArrayOutputStream();
    final ByteArrayOutputStream err = new ByteArrayOutputStream();
    final InputStream in;

    private final ThreadGroup threads;
    private final List<Runnable> hooks = new ArrayList<>();
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile Integer exit;
    private volatile boolean ending;

    /** The group of a tool's threads, which new threads inherit. */
    private static final class Group extends ThreadGroup {
        private final Tool owner;

        Group(String name, Tool owner) {
            super(name);
            this.owner = owner;
        }
    }

    /** Thrown where a tool asks to end the process, to unwind its main thread. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;

        Ended(String message) {
            super(message, null, false, false);
        }
    }

    private Tool(String name, String stdin) {
        threads = new Group(name, this);
        in = new ByteArrayInputStream(stdin.getBytes(StandardCharsets.UTF_8));
    }

    static Tool start(String main, String[] arguments, String stdin) {
        Tool tool = new Tool(main, stdin);
        Thread thread = new Thread(tool.threads, () -> tool.run(main, arguments), main);
        thread.setDaemon(true);
        thread.start();
        return tool;
    }

    /** The tool that the calling thread works for; null for the host's own threads. */
    static Tool current() {
        for (ThreadGroup group = Thread.currentThread().getThreadGroup(); group != null; group = group.getParent()) {
            if (group instanceof Group tool) {
                return tool.owner;
            }
        }
        return null;
    }

    private void run(String main, String[] arguments) {
        try (URLClassLoader loader = new OwnClasses()) {
            Thread.currentThread().setContextClassLoader(loader);
            loader.loadClass(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
            exited(0);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                error.getCause().printStackTrace();
                exited(1);
            }
        } catch (ReflectiveOperationException | IOException error) {
            error.printStackTrace();
            exited(1);
        } finally {
            end();
        }
    }

    /** Run the shutdown hooks as the end of a process would, each on a thread of its own, and wait for them. */
    private void end() {
        synchronized (this) {
            if (ending) {
                return;
            }
            ending = true;
        }
        List<Thread> running = new ArrayList<>(RuntimeHooks.taken(threads));
        for (Runnable hook : hooks) {
            running.add(new Thread(threads, hook, "shutdown hook"));
        }
        try {
            for (Thread thread : running) {
                thread.start();
            }
            for (Thread thread : running) {
                thread.join();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        ended.countDown();
    }

    /** The tool asks to end the process. Does not return. */
    void exit(int code, String message) {
        exited(code);
        if (message != null) {
            System.err.println(message);
        }
        throw new Ended(message);
    }

    private synchronized void exited(int code) {
        exit = exit == null ? code : exit;
    }

    synchronized void onInterrupt(Runnable hook) {
        hooks.add(hook);
    }

    /** End the tool as a signal would: its shutdown hooks run while its main thread goes on, and their end is the process's. */
    void interrupt() {
        exited(INTERRUPTED);
        Thread thread = new Thread(threads, this::end, "end of " + threads.getName());
        thread.setDaemon(true);
        thread.start();
    }

    /** What was written so far, and the exit code if the tool ended within {@code waitMs}. */
    Map<String, Object> look(long waitMs) {
        try {
            ended.await(waitMs, TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        Map<String, Object> seen = new HashMap<>();
        seen.put("exit", ended.getCount() == 0 ? exit : null);
        seen.put("out", out.toString(StandardCharsets.UTF_8));
        seen.put("err", err.toString(StandardCharsets.UTF_8));
        return seen;
    }

    /** The classes of the tools anew, those of the client and of all else shared. */
    private static final class OwnClasses extends URLClassLoader {
        OwnClasses() {
            super(CLASS_PATH, Tool.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.") && !name.startsWith("kafka.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                return found != null ? found : findClass(name);
            }
        }
    }

    private static URL[] classPath() {
        return Arrays.stream(System.getProperty("java.class.path").split(System.getProperty("path.separator")))
                .map(Path::of)
                .filter(path -> path.getFileName().toString().startsWith("kafka"))
                .map(path -> {
                    try {
                        return path.toUri().toURL();
                    } catch (MalformedURLException error) {
                        throw new IllegalStateException(error);
                    }
                })
                .toArray(URL[]::new);
    }
}
