package transports

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// referenceScenarios are differences between servers of the reference and ours, and the
// corresponding behavior of ours over the exec-server protocol.
var referenceScenarios = []scenario{
	{name: "deaths, as the reference tells them", do: referenceDeaths, only: overJSON},
	{name: "an end, however it was asked for", do: referenceEnd, only: references},
	{name: "metadata, as the reference tells it", do: referenceMetadata, only: overJSON},
	{name: "listing, as the reference tells it", do: referenceListing, only: overJSON},
	{name: "copies, as the reference tells of them", do: referenceCopies, only: overJSON},
}

// referenceDeaths: the newer version reports a killing signal as the exit code of a shell, the
// older one not at all.
func referenceDeaths(v *scenarioRun) error {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		exit, _, _, err := v.run(harness.Program("signal-self", fmt.Sprint(int(signal))), nil)
		if err != nil {
			return err
		}
		if v.endpoint.protocol == protocolReferenceOld {
			v.expectExit(exit, 0, 0, execwirev1.ExitCause_EXIT_CAUSE_LOST)
		} else {
			v.expectExit(exit, 128+int(signal), 0, harness.ByItself)
		}
	}
	return nil
}

// referenceEnd: the reference kills without asking the process to end.
func referenceEnd(v *scenarioRun) error {
	for _, how := range []*execwirev1.Termination{harness.Forced, harness.Gracefully(harness.StepTimeout)} {
		exit, output, err := v.terminate(harness.Program("trap-term"), how)
		if err != nil {
			return err
		}
		v.expectExit(exit, 0, syscall.SIGKILL, harness.Terminated)
		v.expectText("stdout", output, "ready\n")
	}
	return nil
}

// referenceMetadata: the reference returns the target of a link, times in milliseconds, and
// sizes since the newer version.
func referenceMetadata(v *scenarioRun) error {
	path := v.write("file", "four")
	modified := time.Date(2001, 2, 3, 4, 5, 6, 7_000_000, time.UTC)
	if err := errors.Join(os.Chtimes(path, time.Time{}, modified), os.Symlink("file", v.path("link"))); err != nil {
		v.Fatal(err)
	}
	for name, is := range map[string]bool{"file": false, "link": true} {
		info, err := v.client.Stat(v.ctx, v.path(name))
		if err != nil {
			return err
		}
		m := info.Metadata
		if m.GetType() != regularFile || m.GetIsSymlink() != is || !m.GetModifyTime().AsTime().Equal(modified) || v.endpoint.protocol != protocolReferenceOld && m.GetSize() != 4 {
			v.Errorf("%s is %v", name, m)
		}
	}
	info, err := v.client.Lstat(v.ctx, v.path("link"))
	if err == nil && info.Metadata.GetType() != symlink {
		v.Errorf("a link is %v", info.Metadata)
	}
	return err
}

// referenceListing: the reference returns the targets of links, omits dangling links, and does
// not distinguish special files.
func referenceListing(v *scenarioRun) error {
	v.write("file", "")
	if err := errors.Join(os.Mkdir(v.path("sub"), 0o700), unix.Mkfifo(v.path("pipe"), 0o600),
		os.Symlink("sub", v.path("link")), os.Symlink("none", v.path("nowhere"))); err != nil {
		v.Fatal(err)
	}
	return v.expectEntries(v.dir,
		client.DirEntry{Name: "file", Type: regularFile, TargetType: regularFile},
		client.DirEntry{Name: "link", Type: directory, TargetType: directory},
		client.DirEntry{Name: "pipe"},
		client.DirEntry{Name: "sub", Type: directory, TargetType: directory})
}

// referenceCopies: the reference does not report what it omitted.
func referenceCopies(v *scenarioRun) error {
	v.write("file", "text")
	if err := os.Mkdir(v.path("tree"), 0o700); err != nil {
		v.Fatal(err)
	}
	v.write("tree/inside", "inside")
	if _, err := v.client.Copy(v.ctx, v.path("file"), v.path("copy"), false); err != nil {
		return err
	}
	v.expectFile(v.path("copy"), "text")
	if _, err := v.client.Copy(v.ctx, v.path("tree"), v.path("again"), true); err != nil {
		return err
	}
	v.expectFile(v.path("again", "inside"), "inside")
	_, err := v.client.Copy(v.ctx, v.path("tree"), v.path("tree", "below"), true)
	v.expectReason("a copy into itself", err, "COPY_INTO_ITSELF")
	return nil
}
