package collector;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;

/** Appends a line to the file `collector.file` for each push of a client: what a broker knows of the client. */
public final class Collector implements MetricsReporter, ClientTelemetryExporterProvider {
    private Path file;
    private Object broker;

    @Override
    public void configure(Map<String, ?> settings) {
        file = Path.of((String) settings.get("collector.file"));
        broker = settings.get("node.id");
    }

    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return (context, payload) -> {
            var client = (RequestContext) context.authorizableRequestContext();
            var line = String.join(
                " ",
                broker.toString(),
                payload.clientInstanceId().toString(),
                client.clientId(),
                client.clientInformation.softwareName(),
                Integer.toString(payload.data().remaining()),
                Boolean.toString(payload.isTerminating()));
            try {
                Files.write(file, List.of(line), StandardCharsets.UTF_8, StandardOpenOption.CREATE,
                    StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        };
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}
}
