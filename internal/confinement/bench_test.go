//go:build linux

package confinement

import (
	"fmt"
	"os/exec"
	"testing"
)

// BenchmarkCheckPeer is what a TCP connection without a credential costs a hub, beside so many
// processes of a host, whose own add to them, and none of the user confined.
func BenchmarkCheckPeer(b *testing.B) {
	var children []*exec.Cmd
	b.Cleanup(func() {
		for _, c := range children {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	for _, n := range []int{100, 1000} {
		for len(children) < n {
			c := exec.Command("/usr/bin/sleep", "1000")
			if err := c.Start(); err != nil {
				b.Fatal(err)
			}
			children = append(children, c)
		}
		b.Run(fmt.Sprintf("%d_processes", n), func(b *testing.B) {
			for b.Loop() {
				if err := CheckPeer(Peer{UID: 1 << 31, Socket: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
