package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// lossyConn is a channel that delivers every call and loses the first answer.
type lossyConn struct {
	grpc.ClientConnInterface
	calls int
}

func (u *lossyConn) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	if u.calls++; u.calls == 1 {
		return status.Error(codes.Unavailable, "the connection was lost")
	}
	return nil
}

// Calls that are not idempotent, or whose second answer would mislead, are sent once.
func TestCalls_NotIdempotent_AreSentOnce(t *testing.T) {
	process, mode := ProcessRef{ProcessID: "p"}, uint32(0o700)
	for name, do := range map[string]func(context.Context, *Client) error{
		"Mkdir":         func(ctx context.Context, c *Client) error { return c.Mkdir(ctx, "/a", &mode) },
		"Symlink":       func(ctx context.Context, c *Client) error { return c.Symlink(ctx, "a", "/b") },
		"Rename":        func(ctx context.Context, c *Client) error { return c.Rename(ctx, "/a", "/b") },
		"RenameNew":     func(ctx context.Context, c *Client) error { return c.RenameNew(ctx, "/a", "/b") },
		"Copy":          func(ctx context.Context, c *Client) error { _, err := c.Copy(ctx, "/a", "/b", true); return err },
		"Remove":        func(ctx context.Context, c *Client) error { return c.Remove(ctx, "/a") },
		"Signal":        func(ctx context.Context, c *Client) error { return c.Signal(ctx, process, 10) },
		"StartDetached": func(ctx context.Context, c *Client) error { _, err := c.StartDetached(ctx, direct("x")); return err },
		"CloseSession":  func(ctx context.Context, c *Client) error { return c.CloseSession(ctx, "s") },
	} {
		t.Run(name, func(t *testing.T) {
			channel := &lossyConn{}
			var typed *Error
			err := do(t.Context(), New(channel))
			if channel.calls != 1 || !errors.As(err, new(*UnknownError)) || !errors.As(err, &typed) || typed.Code != codes.Unavailable {
				t.Errorf("sent %d times: %v", channel.calls, err)
			}
		})
	}
}

// renamer is a file system service whose renames fail.
type renamer struct {
	execwirev1.UnimplementedFileSystemServiceServer
	err error
}

func (r renamer) RenamePath(context.Context, *execwirev1.RenamePathRequest) (*execwirev1.RenamePathResponse, error) {
	return nil, r.err
}

// A call that is sent once says whether it was carried out.
func TestCalls_Interrupted_SayWhetherDone(t *testing.T) {
	nobody, err := grpc.NewClient("passthrough:///nobody", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody listens") }))
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	serve := func(err error) *Client {
		_, c := newFakeWith(t, func(s *grpc.Server) { execwirev1.RegisterFileSystemServiceServer(s, renamer{err: err}) })
		return c
	}
	for name, test := range map[string]struct {
		client           *Client
		notDone, unknown bool
	}{
		"no connection": {New(nobody), true, false},
		"draining":      {serve(serverError(codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING)), true, false},
		"lost":          {serve(status.Error(codes.Unavailable, "the connection was lost")), false, true},
		"evicted":       {serve(serverError(codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_CONNECTIONS)), false, true},
		"refused":       {serve(serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND)), false, false},
	} {
		err := test.client.Rename(t.Context(), "/a", "/b")
		if notDone, unknown := errors.As(err, new(*NotDoneError)), errors.As(err, new(*UnknownError)); notDone != test.notDone || unknown != test.unknown || !errors.As(err, new(*Error)) {
			t.Errorf("%s: not done %v, unknown %v: %v", name, notDone, unknown, err)
		}
	}
}

func TestCalls_Idempotent_AreRetried(t *testing.T) {
	process, mode := ProcessRef{ProcessID: "p"}, uint32(0o700)
	for name, do := range map[string]func(context.Context, *Client) error{
		"Stat":       func(ctx context.Context, c *Client) error { _, err := c.Stat(ctx, "/a"); return err },
		"RealPath":   func(ctx context.Context, c *Client) error { _, err := c.RealPath(ctx, "/a"); return err },
		"MkdirAll":   func(ctx context.Context, c *Client) error { return c.MkdirAll(ctx, "/a", &mode) },
		"RemoveAll":  func(ctx context.Context, c *Client) error { return c.RemoveAll(ctx, "/a") },
		"Describe":   func(ctx context.Context, c *Client) error { _, err := c.Describe(ctx); return err },
		"GetProcess": func(ctx context.Context, c *Client) error { _, err := c.GetProcess(ctx, process); return err },
		"ReadOutput": func(ctx context.Context, c *Client) error {
			_, err := c.ReadOutput(ctx, process, ReadOptions{})
			return err
		},
		"Terminate": func(ctx context.Context, c *Client) error {
			_, err := c.Terminate(ctx, process, Termination{})
			return err
		},
		"GrantSession": func(ctx context.Context, c *Client) error { return c.GrantSession(ctx, "s", "other", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				channel := &lossyConn{}
				if err := do(t.Context(), New(channel)); channel.calls != 2 || err != nil {
					t.Errorf("sent %d times: %v", channel.calls, err)
				}
			})
		})
	}
}
