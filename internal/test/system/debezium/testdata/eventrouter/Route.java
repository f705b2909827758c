import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.data.Envelope;
import io.debezium.data.Json;
import io.debezium.time.ZonedTimestamp;
import io.debezium.transforms.outbox.EventRouter;
import java.io.FileReader;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;

/**
 * Reads rows of outbox_messages as JSON from standard input, sends them through Debezium's event router and Kafka Connect's converters, which
 * a connector's properties configure, and prints the records that a connector would write.
 */
public class Route {
    // The PostgreSQL connector's types of the columns, with binary.handling.mode=bytes.
    static final Schema ROW = SchemaBuilder.struct().name("txonce.public.outbox_messages.Value").optional()
            .field("shard", Schema.INT16_SCHEMA)
            .field("seq", Schema.INT64_SCHEMA)
            .field("id", Schema.STRING_SCHEMA)
            .field("topic", Schema.STRING_SCHEMA)
            .field("key", Schema.OPTIONAL_BYTES_SCHEMA)
            .field("payload", Schema.BYTES_SCHEMA)
            .field("headers", Json.builder().optional().build())
            .field("enqueued_at", ZonedTimestamp.builder().build())
            .field("attempts", Schema.INT32_SCHEMA)
            .field("retry_at", ZonedTimestamp.builder().optional().build())
            .field("cause", Schema.OPTIONAL_STRING_SCHEMA)
            .build();
    static final Schema KEY = SchemaBuilder.struct().name("txonce.public.outbox_messages.Key")
            .field("shard", Schema.INT16_SCHEMA)
            .field("seq", Schema.INT64_SCHEMA)
            .build();
    static final Schema SOURCE = SchemaBuilder.struct().name("io.debezium.connector.postgresql.Source")
            .field("table", Schema.STRING_SCHEMA)
            .build();

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileReader in = new FileReader(args[0])) {
            properties.load(in);
        }
        EventRouter<SourceRecord> router = new EventRouter<>();
        router.configure(below(properties, "transforms.outbox."));
        Converter keys = (Converter) make(properties, "key.converter");
        keys.configure(below(properties, "key.converter."), true);
        Converter values = (Converter) make(properties, "value.converter");
        values.configure(below(properties, "value.converter."), false);
        HeaderConverter headers = (HeaderConverter) make(properties, "header.converter");

        ObjectMapper json = new ObjectMapper();
        ArrayNode out = json.createArrayNode();
        for (JsonNode row : json.readTree(System.in)) {
            SourceRecord record = router.apply(insertion(row));
            if (record == null) {
                throw new IllegalStateException("the router drops " + row);
            }
            ObjectNode o = out.addObject();
            o.put("topic", record.topic());
            o.put("key", base64(keys.fromConnectData(record.topic(), new RecordHeaders(), record.keySchema(), record.key())));
            o.put("value", base64(values.fromConnectData(record.topic(), new RecordHeaders(), record.valueSchema(), record.value())));
            ArrayNode list = o.putArray("headers");
            for (Header h : record.headers()) {
                list.addObject().put("name", h.key())
                        .put("value", base64(headers.fromConnectHeader(record.topic(), h.key(), h.schema(), h.value())));
            }
        }
        System.out.println(json.writeValueAsString(out));
    }

    /** Returns the change event of an inserted row. */
    static SourceRecord insertion(JsonNode row) {
        Struct after = new Struct(ROW)
                .put("shard", (short) row.get("shard").asInt())
                .put("seq", row.get("seq").asLong())
                .put("id", row.get("id").asText())
                .put("topic", row.get("topic").asText())
                .put("key", bytes(row.get("key")))
                .put("payload", bytes(row.get("payload")))
                .put("headers", row.get("headers").isNull() ? null : row.get("headers").asText())
                .put("enqueued_at", row.get("enqueued_at").asText())
                .put("attempts", 0);
        Struct key = new Struct(KEY).put("shard", after.get("shard")).put("seq", after.get("seq"));
        Envelope envelope = Envelope.defineSchema().withName("txonce.public.outbox_messages.Envelope")
                .withRecord(ROW).withSource(SOURCE).build();
        Struct change = envelope.create(after, new Struct(SOURCE).put("table", "outbox_messages"), Instant.now());
        return new SourceRecord(Map.of(), Map.of(), "txonce.public.outbox_messages", null, KEY, key, envelope.schema(), change);
    }

    static ByteBuffer bytes(JsonNode n) {
        return n.isNull() ? null : ByteBuffer.wrap(Base64.getDecoder().decode(n.asText()));
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
