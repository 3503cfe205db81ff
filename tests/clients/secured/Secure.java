import java.util.HashMap;
import java.util.Map;

/** The settings of kafka-clients for SASL_SSL. */
final class Secure {

    static final String COMMON = "org.apache.kafka.common.security.";

    static Map<String, Object> with(Map<String, Object> settings) {
        var found = new HashMap<>(settings);
        var mechanism = System.getenv("SECURED_MECHANISM");
        var user = System.getenv("SECURED_USER");
        found.put("security.protocol", "SASL_SSL");
        found.put("ssl.truststore.type", "PEM");
        found.put("ssl.truststore.location", System.getenv("SECURED_CA"));
        found.put("sasl.mechanism", mechanism);
        if (mechanism.equals("OAUTHBEARER")) {
            found.put(
                "sasl.jaas.config",
                COMMON + "oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"" + user + "\";");
            return found;
        }
        var module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        found.put(
            "sasl.jaas.config",
            COMMON + module + " required username=\"" + user + "\" password=\""
                + System.getenv("SECURED_PASSWORD") + "\";");
        return found;
    }

    private Secure() {}
}
