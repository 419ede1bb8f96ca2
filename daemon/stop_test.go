package daemon

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/execwire/execwire/internal/config"
)

func TestKeepalive_ClientsMayPing(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		time.Second:      time.Second / 3,
		9 * time.Second:  3 * time.Second,
		30 * time.Second: 5 * time.Second,
		time.Hour:        5 * time.Second,
	} {
		cfg := config.Default()
		cfg.KeepaliveInterval = config.Duration(interval)
		if policy := pingPolicy(cfg); policy.MinTime != want || !policy.PermitWithoutStream {
			t.Errorf("a server that pings every %v demands %+v, want %v", interval, policy, want)
		}
	}
}

func TestStopServer_HangingHandler_TimesOut(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	s := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		close(arrived)
		<-answer // ignoring its context
		return nil
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	called := make(chan error, 1)
	go func() {
		called <- conn.Invoke(context.Background(), "/a.Service/Hang", &emptypb.Empty{}, &emptypb.Empty{})
	}()
	<-arrived
	if err := stopServer(s, time.Millisecond, time.Millisecond); !errors.Is(err, errHandlers) {
		t.Errorf("stopServer = %v", err)
	}
	if err := <-called; status.Code(err) != codes.Unavailable {
		t.Errorf("the call ended with %v", err)
	}
	close(answer)
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
}
