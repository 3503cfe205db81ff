package matrix;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/**
 * The worker process of the Java client's column: one JVM for all of its cells. It reads cells from stdin, a line of JSON each,
 * and answers on stdout with what came of them; see {@code workers/runtime.py} for the lines. It judges nothing.
 */
public final class Worker {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final PrintStream answers = System.out;
    private final Map<String, Scenario> scenarios = new LinkedHashMap<>();

    /** What the client does in one cell. Returns a note for the report, or nothing; throws what went wrong. */
    interface Scenario {
        Object run(Cell cell) throws Exception;
    }

    private Worker() {
        System.setOut(System.err);
        Clusters.register(scenarios);
        Producing.register(scenarios);
        Transactions.register(scenarios);
        Groups.register(scenarios);
        Consuming.register(scenarios);
        Topics.register(scenarios);
        Administration.register(scenarios);
    }

    public static void main(String[] arguments) throws IOException {
        new Worker().serve();
        System.exit(0);
    }

    private void serve() throws IOException {
        String version = "kafka-clients " + AppInfoParser.getVersion() + " on Java " + System.getProperty("java.version");
        say(Map.of("ready", version, "features", scenarios.keySet()));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            say(run(JSON.readTree(line)));
        }
    }

    private Map<String, Object> run(JsonNode request) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try (Cell cell = new Cell(request, this::hold)) {
            Object note = scenarios.get(cell.feature()).run(cell);
            answer.put("outcome", "ok");
            answer.put("detail", note == null ? "" : note.toString());
        } catch (Exception | AssertionError error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            answer.put("outcome", "failed");
            answer.put("detail", error.toString());
            answer.put("trace", trace.toString());
        }
        return answer;
    }

    /** Stand still, every connection open, until the other side has looked at this process. */
    private void hold() {
        try {
            say(Map.of("hold", true));
            JsonNode reply = JSON.readTree(asked.readLine());
            Check.that(reply.path("go").asBoolean(), "told to stop while holding still");
        } catch (IOException error) {
            throw new AssertionError(error);
        }
    }

    private void say(Map<String, ?> message) throws IOException {
        answers.println(JSON.writeValueAsString(message));
        answers.flush();
    }
}
