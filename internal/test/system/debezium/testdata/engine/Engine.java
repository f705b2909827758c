import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.FileReader;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

/**
 * Runs Debezium's engine. The first argument is a file with a connector's properties; further arguments are properties as name=value. Each
 * record passes Kafka Connect's converters and is printed as a line of JSON before the engine is told that it was processed. The program
 * ends when its standard input ends, and with status 1 when the engine gives up.
 */
public class Engine {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileReader in = new FileReader(args[0])) {
            properties.load(in);
        }
        for (int i = 1; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            properties.setProperty(setting[0], setting[1]);
        }
        properties.setProperty("offset.storage", Offsets.class.getName());
        Converter keys = (Converter) make(properties, "key.converter");
        keys.configure(below(properties, "key.converter."), true);
        Converter values = (Converter) make(properties, "value.converter");
        values.configure(below(properties, "value.converter."), false);
        HeaderConverter headers = (HeaderConverter) make(properties, "header.converter");
        // These are for Kafka Connect. The engine would apply them to its own formats.
        properties.stringPropertyNames().stream().filter(n -> n.matches("(key|value|header)\\.converter.*")).forEach(properties::remove);

        Thread alive = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (IOException e) {
                // like the end of the input
            }
            Runtime.getRuntime().halt(2);
        });
        alive.setDaemon(true);
        alive.start();

        ObjectMapper json = new ObjectMapper();
        PrintStream out = System.out;
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine = DebeziumEngine.create(Connect.class)
                .using(properties)
                .using(Engine.class.getClassLoader())
                .using((boolean success, String message, Throwable error) -> {
                    System.err.println("THE ENGINE ENDS: " + message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                })
                .notifying((List<ChangeEvent<SourceRecord, SourceRecord>> events,
                        DebeziumEngine.RecordCommitter<ChangeEvent<SourceRecord, SourceRecord>> committer) -> {
                    for (ChangeEvent<SourceRecord, SourceRecord> event : events) {
                        SourceRecord record = event.value();
                        ObjectNode o = json.createObjectNode();
                        o.put("topic", record.topic());
                        o.put("key", base64(keys.fromConnectData(record.topic(), new RecordHeaders(), record.keySchema(), record.key())));
                        o.put("value", base64(values.fromConnectData(record.topic(), new RecordHeaders(), record.valueSchema(), record.value())));
                        ArrayNode list = o.putArray("headers");
                        for (Header h : record.headers()) {
                            list.addObject().put("name", h.key())
                                    .put("value", base64(headers.fromConnectHeader(record.topic(), h.key(), h.schema(), h.value())));
                        }
                        try {
                            out.println(json.writeValueAsString(o));
                        } catch (IOException e) {
                            throw new RuntimeException(e);
                        }
                        if (out.checkError()) {
                            Runtime.getRuntime().halt(3);
                        }
                        committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                })
                .build();
        engine.run();
        Runtime.getRuntime().halt(1);
    }

    /** Stores offsets in a file that a kill never leaves half written. Kafka Connect stores them in a topic. */
    public static class Offsets extends MemoryOffsetBackingStore {
        private Path file;

        @Override
        public void configure(WorkerConfig config) {
            file = Path.of(config.getString("offset.storage.file.filename"));
        }

        @Override
        public synchronized void start() {
            super.start();
            if (!Files.exists(file)) {
                return;
            }
            try {
                Map<String, String> saved = new ObjectMapper().readValue(file.toFile(), new TypeReference<>() { });
                saved.forEach((k, v) -> data.put(bytes(k), bytes(v)));
            } catch (IOException e) {
                throw new RuntimeException(e);
            }
        }

        @Override
        protected void save() {
            Map<String, String> saved = new HashMap<>();
            data.forEach((k, v) -> saved.put(text(k), text(v)));
            Path next = Path.of(file + ".next");
            try {
                Files.write(next, new ObjectMapper().writeValueAsBytes(saved));
                Files.move(next, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
            } catch (IOException e) {
                throw new RuntimeException(e);
            }
        }

        @Override
        public Set<Map<String, Object>> connectorPartitions(String connector) {
            return Set.of();
        }

        private static ByteBuffer bytes(String s) {
            return ByteBuffer.wrap(Base64.getDecoder().decode(s));
        }

        private static String text(ByteBuffer b) {
            byte[] copy = new byte[b.remaining()];
            b.duplicate().get(copy);
            return base64(copy);
        }
    }

    static String base64(byte[] b) {
        return b == null ? null : Base64.getEncoder().encodeToString(b);
    }

    static Object make(Properties properties, String name) throws Exception {
        return Class.forName(properties.getProperty(name)).getDeclaredConstructor().newInstance();
    }

    static Map<String, String> below(Properties properties, String prefix) {
        Map<String, String> m = new HashMap<>();
        properties.stringPropertyNames().stream().filter(n -> n.startsWith(prefix))
                .forEach(n -> m.put(n.substring(prefix.length()), properties.getProperty(n)));
        return m;
    }
}
