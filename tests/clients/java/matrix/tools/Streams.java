package matrix.tools;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Standard streams that lead to whichever tool the calling thread works for, and to the process's own for all others. */
final class Streams {
    /** Which of a tool's two outputs. */
    enum Kind {
        OUT,
        ERR
    }

    private Streams() {}

    static PrintStream out(Kind kind, PrintStream otherwise) {
        OutputStream stream = new OutputStream() {
            private OutputStream target() {
                Tool tool = Tool.current();
                return tool == null ? otherwise : kind == Kind.OUT ? tool.out : tool.err;
            }

            @Override
            public void write(int one) throws IOException {
                target().write(one);
            }

            @Override
            public void write(byte[] bytes, int start, int length) throws IOException {
                target().write(bytes, start, length);
            }
        };
        return new PrintStream(stream, true, StandardCharsets.UTF_8);
    }

    static InputStream in() {
        return new InputStream() {
            private InputStream source() {
                Tool tool = Tool.current();
                return tool == null ? InputStream.nullInputStream() : tool.in;
            }

            @Override
            public int read() throws IOException {
                return source().read();
            }

            @Override
            public int read(byte[] bytes, int start, int length) throws IOException {
                return source().read(bytes, start, length);
            }

            @Override
            public int available() throws IOException {
                return source().available();
            }
        };
    }
}
