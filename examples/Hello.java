import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * The smallest job worth watching: says which job it is, works a few steps, says that it is done.
 *
 * <p>Arguments: {@code [STEPS] [STEP_MILLISECONDS] [EXIT_CODE]}, by default 3 steps of 1000 ms and exit code 0.
 */
public final class Hello {
    private Hello() {}

    public static void main(String[] args) throws InterruptedException, IOException {
        int steps = number(args, 0, 3);
        int stepMillis = number(args, 1, 1000);
        int exitCode = number(args, 2, 0);
        System.out.println("Hello from job " + System.getenv("JOB_ID") + ", attempt " + System.getenv("JOB_ATTEMPT")
                + ", epoch " + System.getenv("JOB_EPOCH"));
        reportCreated();
        for (int step = 1; step <= steps; step++) {
            Thread.sleep(stepMillis);
            System.out.println("step " + step + " of " + steps);
        }
        System.out.println("Goodbye");
        System.exit(exitCode);
    }

    private static int number(String[] args, int index, int otherwise) {
        return args.length > index ? Integer.parseInt(args[index]) : otherwise;
    }

    /** With {@code engine.process.created = "signal"} the job counts as created once this file exists. */
    private static void reportCreated() throws IOException {
        String file = System.getenv("JOB_CREATED_FILE");
        if (file != null && !Files.exists(Path.of(file))) {
            Files.createFile(Path.of(file));
        }
    }
}
