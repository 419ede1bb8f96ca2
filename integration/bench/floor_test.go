package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	ossignal "os/signal"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// The floor of the rows: a server in a process of its own that does the same jobs with
// nothing around them. It runs programs, has terminals and sends files; it numbers, retains,
// limits and authenticates nothing, and waits for no acknowledgement. Its gRPC has the
// transport settings of the daemon.

const (
	floorPiece            = 32_700    // of output, or of a file by gRPC, in one message
	floorSocketPiece      = 256 << 10 // of a file in one frame: smaller ones take twice the time
	floorStreamWindow     = 8 << 20
	floorConnectionWindow = 16 << 20
	floorBuffer           = 128 << 10
)

func init() { testproc.Register("bench-floor", serveFloor) }

var floorDescription = grpc.ServiceDesc{
	ServiceName: "bench.Floor",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{
		{StreamName: "Run", Handler: floorRun, ServerStreams: true},
		{StreamName: "Terminal", Handler: floorTerminal, ServerStreams: true, ClientStreams: true},
		{StreamName: "File", Handler: floorFile, ServerStreams: true},
		{StreamName: "Echo", Handler: floorEcho, ServerStreams: true, ClientStreams: true},
	},
}

// spawn runs a program with two pipes, passes on what it writes, and waits for its end.
// output is called by one goroutine at a time, with bytes that are valid during the call.
func spawn(argv []string, output func([]byte) error) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "GORACE=atexit_sleep_ms=0"}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var passing sync.Mutex
	pass := func(pipe io.Reader) {
		for piece := make([]byte, floorPiece); ; {
			n, err := pipe.Read(piece)
			if err != nil {
				return // at the end of the output
			}
			passing.Lock()
			err = output(piece[:n])
			passing.Unlock()
			if err != nil {
				_ = cmd.Process.Kill() // the client is gone
				return
			}
		}
	}
	var reading sync.WaitGroup
	reading.Go(func() { pass(stderr) })
	pass(stdout)
	reading.Wait()
	return cmd.Wait()
}

// floorRun sends the output of a program, whose arguments are the request in JSON.
func floorRun(_ any, stream grpc.ServerStream) error {
	var request wrapperspb.BytesValue
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	var argv []string
	if err := json.Unmarshal(request.GetValue(), &argv); err != nil {
		return err
	}
	return spawn(argv, func(output []byte) error { return stream.SendMsg(wrapperspb.Bytes(output)) })
}

// floorTerminal writes to a terminal what it receives, and sends what the terminal echoes.
func floorTerminal(_ any, stream grpc.ServerStream) error {
	master, end, err := startTerminal()
	if err != nil {
		return err
	}
	var echoing sync.WaitGroup
	echoing.Go(func() {
		for piece := make([]byte, 16); ; {
			n, err := master.Read(piece)
			if err != nil || stream.SendMsg(wrapperspb.Bytes(piece[:n])) != nil {
				return // the terminal or the client is closed
			}
		}
	})
	for err == nil {
		var key wrapperspb.BytesValue
		if err = stream.RecvMsg(&key); err == nil {
			_, err = master.Write(key.GetValue())
		}
	}
	end()
	echoing.Wait()
	if err == io.EOF {
		return nil
	}
	return err
}

// floorFile sends the file whose path is the request.
func floorFile(_ any, stream grpc.ServerStream) error {
	var request wrapperspb.BytesValue
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	return readPieces(string(request.GetValue()), floorPiece, func(piece []byte) error { return stream.SendMsg(wrapperspb.Bytes(piece)) })
}

// readPieces passes on the pieces of a file, which are valid during the call.
func readPieces(path string, size int, pass func([]byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for piece := make([]byte, size); ; {
		n, err := f.Read(piece)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = pass(piece[:n])
		}
		if err != nil {
			return err
		}
	}
}

// floorEcho sends back what it receives.
func floorEcho(_ any, stream grpc.ServerStream) error {
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

// serveFloor prints where it listens and serves until a signal.
func serveFloor([]string) int {
	server := grpc.NewServer(
		grpc.StaticStreamWindowSize(floorStreamWindow), grpc.StaticConnWindowSize(floorConnectionWindow),
		grpc.WriteBufferSize(floorBuffer), grpc.ReadBufferSize(floorBuffer))
	server.RegisterService(&floorDescription, nil)
	signals := make(chan os.Signal, 2)
	ossignal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	for _, way := range []struct {
		scheme string
		serve  func(net.Listener) error
	}{{"grpc", server.Serve}, {"ws", func(l net.Listener) error { return serveFloorSocket(l, server) }}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		go func() { _ = way.serve(l) }() // until the end of this program
		fmt.Printf("%s://%s\n", way.scheme, l.Addr())
	}
	<-signals
	return 0
}

// startFloor runs the floor until the benchmark ends.
func (b *bench) startFloor() *harness.Peer {
	b.Helper()
	argv := testproc.Argv("bench-floor")
	return harness.StartPeer(b, nil, argv[0], argv[1:]...)
}

// tuned are the options of a channel with the transport settings of package client.
func tuned() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithInitialWindowSize(floorStreamWindow), grpc.WithInitialConnWindowSize(floorConnectionWindow),
		grpc.WithReadBufferSize(floorBuffer), grpc.WithWriteBufferSize(floorBuffer)}
}

// channel connects generated stubs, or those of the floor, to a peer over TCP. Without
// options it is a stock client: what grpc-go does by default.
func (b *bench) channel(p *harness.Peer, options ...grpc.DialOption) *grpc.ClientConn {
	b.Helper()
	_, address, _ := strings.Cut(p.URLs["TCP"], "://")
	conn, err := grpc.NewClient("passthrough:///"+address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

// receiveFloor sends a request to a method of the floor, and checks how many bytes come.
func (b *bench) receiveFloor(conn *grpc.ClientConn, method string, request []byte, n int64) {
	b.Helper()
	stream, err := conn.NewStream(b.ctx, &grpc.StreamDesc{ServerStreams: true}, "/bench.Floor/"+method)
	if err == nil {
		err = stream.SendMsg(wrapperspb.Bytes(request))
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
		b.Fatalf("the floor sent %d bytes of %d: %v", received, n, err)
	}
}

// runFloor runs a program that writes n bytes on the floor.
func (b *bench) runFloor(conn *grpc.ClientConn, n int64, argv ...string) {
	b.Helper()
	request, _ := json.Marshal(argv) // cannot fail
	b.receiveFloor(conn, "Run", request, n)
}

// exchangeFloor opens a stream of the floor that answers each message with the same, and
// returns one round trip on it.
func (b *bench) exchangeFloor(conn *grpc.ClientConn, method string) func() {
	b.Helper()
	stream, err := conn.NewStream(b.ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/bench.Floor/"+method)
	if err != nil {
		b.Fatal(err)
	}
	message := wrapperspb.Bytes([]byte("x"))
	return func() {
		var m wrapperspb.BytesValue
		if err := stream.SendMsg(message); err != nil {
			b.Fatal(err)
		}
		if err := stream.RecvMsg(&m); err != nil || string(m.GetValue()) != "x" {
			b.Fatalf("the floor answered %q: %v", m.GetValue(), err)
		}
	}
}
