package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	ossignal "os/signal"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// The floor of every gRPC row: a server in a separate process without an implementation behind
// its methods, with the same transport settings as the daemon and the client.

const (
	bareChunk            = 32_700
	bareStreamWindow     = 8 << 20
	bareConnectionWindow = 16 << 20
	bareBuffer           = 128 << 10
)

func init() { testproc.Register("bench-bare", serveBare) }

var bareDescription = grpc.ServiceDesc{
	ServiceName: "bench.Bare",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{
		{StreamName: "Output", Handler: bareOutput, ServerStreams: true},
		{StreamName: "Relay", Handler: bareRelay, ServerStreams: true},
		{StreamName: "Store", Handler: bareStore, ClientStreams: true},
		{StreamName: "Echo", Handler: bareEcho, ServerStreams: true, ClientStreams: true},
	},
}

// bareOutput sends the requested number of zeros.
func bareOutput(_ any, stream grpc.ServerStream) error {
	var wanted wrapperspb.Int64Value
	if err := stream.RecvMsg(&wanted); err != nil {
		return err
	}
	chunk := make([]byte, bareChunk)
	for left := wanted.GetValue(); left > 0; left -= bareChunk {
		m := &wrapperspb.BytesValue{Value: chunk[:min(left, bareChunk)]}
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
	return nil
}

// bareRelay sends the output of a process that writes the requested number of zeros: the
// shortest way from a pipe to a stream, without retention, numbers or acknowledgements.
func bareRelay(_ any, stream grpc.ServerStream) error {
	var wanted wrapperspb.Int64Value
	if err := stream.RecvMsg(&wanted); err != nil {
		return err
	}
	argv := zeros(wanted.GetValue())
	cmd := exec.Command(argv[0], argv[1:]...)
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	chunk := make([]byte, bareChunk)
	for err == nil {
		var n int
		if n, err = output.Read(chunk); n > 0 {
			err = errors.Join(err, stream.SendMsg(&wrapperspb.BytesValue{Value: chunk[:n]}))
		}
	}
	if err != io.EOF {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return cmd.Wait()
}

// bareStore writes what it receives to the file named by the first message: the shortest way
// from a stream to a file.
func bareStore(_ any, stream grpc.ServerStream) error {
	var path, m wrapperspb.BytesValue
	if err := stream.RecvMsg(&path); err != nil {
		return err
	}
	f, err := os.Create(string(path.GetValue()))
	if err != nil {
		return err
	}
	written := int64(0)
	for err == nil {
		var n int
		if err = stream.RecvMsg(&m); err == nil {
			n, err = f.Write(m.GetValue())
		}
		written += int64(n)
	}
	if closed := f.Close(); err != io.EOF || closed != nil {
		return errors.Join(err, closed)
	}
	return stream.SendMsg(wrapperspb.Int64(written))
}

// bareEcho sends back what it receives.
func bareEcho(_ any, stream grpc.ServerStream) error {
	for {
		var m wrapperspb.BytesValue
		if err := stream.RecvMsg(&m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(&m); err != nil {
			return err
		}
	}
}

// serveBare SOCKET prints where it listens and serves until a signal.
func serveBare(args []string) int {
	server := grpc.NewServer(
		grpc.StaticStreamWindowSize(bareStreamWindow), grpc.StaticConnWindowSize(bareConnectionWindow),
		grpc.WriteBufferSize(bareBuffer), grpc.ReadBufferSize(bareBuffer))
	server.RegisterService(&bareDescription, nil)
	signals := make(chan os.Signal, 2)
	ossignal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	failed := make(chan error, 2)
	for network, address := range map[string]string{"unix": args[0], "tcp": "127.0.0.1:0"} {
		l, err := net.Listen(network, address)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		go func() { failed <- server.Serve(l) }()
		if network == "tcp" {
			network = "grpc"
		}
		fmt.Printf("%s://%s\n", network, l.Addr())
	}
	<-signals
	server.Stop()
	return 0
}

// dialBare connects to the floor as client.Dial does to the daemon.
func (b *bench) dialBare(p *harness.Peer, transport string) *grpc.ClientConn {
	b.Helper()
	_, address, _ := strings.Cut(p.URLs[transport], "://")
	target := "passthrough:///" + address
	if transport == "unix" {
		target = p.URLs[transport]
	}
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(bareStreamWindow), grpc.WithInitialConnWindowSize(bareConnectionWindow),
		grpc.WithReadBufferSize(bareBuffer), grpc.WithWriteBufferSize(bareBuffer))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

// receiveBare receives n bytes with a method of the floor and checks their number.
func (b *bench) receiveBare(conn *grpc.ClientConn, method string, n int64) {
	b.Helper()
	stream, err := conn.NewStream(b.ctx, &grpc.StreamDesc{ServerStreams: true}, "/bench.Bare/"+method)
	if err == nil {
		err = stream.SendMsg(wrapperspb.Int64(n))
	}
	if err == nil {
		err = stream.CloseSend()
	}
	var received int64
	for err == nil {
		var m wrapperspb.BytesValue
		err = stream.RecvMsg(&m)
		received += int64(len(m.GetValue()))
	}
	if err != io.EOF || received != n {
		b.Fatalf("the bare stream gave %d bytes of %d: %v", received, n, err)
	}
}

// sendBare makes the floor write a file of n bytes, and checks their number.
func (b *bench) sendBare(conn *grpc.ClientConn, path string, n int64) {
	b.Helper()
	stream, err := conn.NewStream(b.ctx, &grpc.StreamDesc{ClientStreams: true}, "/bench.Bare/Store")
	if err == nil {
		err = stream.SendMsg(wrapperspb.Bytes([]byte(path)))
	}
	for piece, left := make([]byte, uploadPiece), n; err == nil && left > 0; left -= uploadPiece {
		err = stream.SendMsg(wrapperspb.Bytes(piece[:min(left, uploadPiece)]))
	}
	if err == nil {
		err = stream.CloseSend()
	}
	var written wrapperspb.Int64Value
	if err == nil {
		err = stream.RecvMsg(&written)
	}
	if err != nil || written.GetValue() != n {
		b.Fatalf("the floor wrote %d bytes of %d: %v", written.GetValue(), n, err)
	}
}

// bareRoundTrip opens a stream that echoes and returns one round trip on it.
func (b *bench) bareRoundTrip(conn *grpc.ClientConn) func() {
	b.Helper()
	stream, err := conn.NewStream(b.ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/bench.Bare/Echo")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = stream.CloseSend() })
	message := wrapperspb.Bytes([]byte("x"))
	return func() {
		var m wrapperspb.BytesValue
		if err := stream.SendMsg(message); err != nil {
			b.Fatal(err)
		}
		if err := stream.RecvMsg(&m); err != nil || len(m.GetValue()) != 1 {
			b.Fatalf("the bare stream echoed %q: %v", m.GetValue(), err)
		}
	}
}
