package fileworker

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A worker that has no descriptor left for a connection still answers, for example to close files.
func TestInvoke_WorkerHasNoDescriptors_GoesByGRPC(t *testing.T) {
	ours, theirs := socketPair(t)
	client, server := socketPair(t)
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "answer",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(emptypb.Empty)
			return m, decode(m)
		}}}}, new(any))
	l := &listener{conns: make(chan net.Conn, 1)}
	l.conns <- server
	var worker sync.WaitGroup
	worker.Go(func() { _ = s.Serve(l) })
	worker.Go(func() {
		for message := make([]byte, 1); ; { // without space for descriptors
			if n, _, _, _, err := theirs.ReadMsgUnix(message, nil); err != nil || n <= 0 {
				return
			}
		}
	})
	conn, err := connect(t.Context(), client, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(conn, ours, 1<<20)
	for range 2 * callConns {
		if err := c.Invoke(t.Context(), "/test/answer", new(emptypb.Empty), new(emptypb.Empty)); err != nil {
			t.Error(err)
		}
	}
	c.Close()
	s.Stop()
	_ = ours.Close()
	worker.Wait()
}
