package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
			if err := do(t.Context(), New(channel)); channel.calls != 1 || !errors.As(err, &typed) || typed.Code != codes.Unavailable {
				t.Errorf("sent %d times: %v", channel.calls, err)
			}
		})
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
