package client

import (
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// The benchmarks receive the same bytes over the same kind of connection: with a bare
// stream, with Run, and as events of a Process. The target ratio is 0.85.

const (
	benchChunk    = 32_700
	benchMessages = 4096
	benchBytes    = benchChunk * benchMessages
)

func floodScript() script {
	data := string(make([]byte, benchChunk))
	messages := make([]*execwirev1.RunProcessResponse, 0, benchMessages+2)
	messages = append(messages, started(0))
	for i := range uint64(benchMessages) {
		messages = append(messages, events(stdout(i+1, i*benchChunk, data)))
	}
	messages = append(messages, events(exited(benchMessages+1, 0), closed(benchMessages+2, benchBytes)))
	return sends(nil, messages...)
}

func benchServer(b *testing.B) string {
	b.Helper()
	return serveFake(b, "tcp", "127.0.0.1:0", &fakeServer{beyond: floodScript()}).String()
}

func BenchmarkBareStream(b *testing.B) {
	address := benchServer(b)
	conn, err := grpc.NewClient("passthrough:///"+address, append(
		dialOptions(&recordingDialer{endpoint: endpoint{network: "tcp", address: address}}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	b.SetBytes(benchBytes)
	for b.Loop() {
		stream, err := execwirev1.NewProcessServiceClient(conn).RunProcess(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := stream.Send(&execwirev1.RunProcessRequest{}); err != nil {
			b.Fatal(err)
		}
		received := 0
		for {
			m, err := stream.Recv()
			if err != nil {
				break
			}
			for _, e := range m.GetEvents().GetEvents() {
				received += len(e.GetOutput().GetData())
			}
		}
		if received != benchBytes {
			b.Fatalf("received %d bytes of %d", received, benchBytes)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	c, err := Dial(b.Context(), "grpc://"+benchServer(b))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.SetBytes(benchBytes)
	for b.Loop() {
		exit, err := c.Run(b.Context(), RunOptions{Process: direct("x")})
		if err != nil || exit.StdoutBytes != benchBytes {
			b.Fatalf("got %+v, %v", exit, err)
		}
	}
}

func BenchmarkProcessEvents(b *testing.B) {
	c, err := Dial(b.Context(), "grpc://"+benchServer(b))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.SetBytes(benchBytes)
	for b.Loop() {
		process, err := c.Start(b.Context(), StartOptions{Process: direct("x")})
		if err != nil {
			b.Fatal(err)
		}
		received := 0
		for event, err := range process.Events(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			if output, ok := event.(*OutputEvent); ok {
				received += len(output.Data)
			}
		}
		if _, err := process.Wait(b.Context()); err != nil || received != benchBytes {
			b.Fatalf("received %d bytes, %v", received, err)
		}
	}
}
