import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Instant;

/** What run_costs runs: stamps its first line, blocks for ever, exits, throws, or starts very many processes. */
public final class Trial {
    private Trial() {}

    public static void main(String[] args) throws Exception {
        Instant first = Instant.now();
        switch (args[0]) {
            case "stamp" -> stamp(Path.of(args[1]), first);
            case "block" -> Thread.currentThread().join();
            case "exit" -> System.exit(3);
            case "throw" -> throw new IllegalStateException("boom");
            case "fork" -> fork(Integer.parseInt(args[1]));
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    /** Microseconds since 1970, under the final name only when they are whole. */
    private static void stamp(Path file, Instant first) throws IOException {
        long micros = first.getEpochSecond() * 1_000_000 + first.getNano() / 1_000;
        Path half = file.resolveSibling(file.getFileName() + ".half");
        Files.writeString(half, Long.toString(micros));
        Files.move(half, file, StandardCopyOption.ATOMIC_MOVE);
    }

    /** Starts processes that stay, as fast as it can. */
    private static void fork(int processes) throws Exception {
        String script = "i=0; while [ $i -lt " + processes + " ]; do sleep 600 & i=$((i+1)); done; wait";
        new ProcessBuilder("sh", "-c", script).inheritIO().start().waitFor();
    }
}
