package fsops_test

import (
	"errors"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/fsops"
)

// keeper makes external files and counts those that have ended.
type keeper struct{ ended chan struct{} }

func newKeeper() *keeper { return &keeper{make(chan struct{}, 10)} }

func (k *keeper) kept() fsops.ExternalFile {
	return fsops.ExternalFile{Holder: k, Close: func() { k.ended <- struct{}{} }}
}

func (k *keeper) keep(t *testing.T, handles *fsops.Handles, id string) {
	t.Helper()
	if err := handles.OpenExternal(id, k.kept(), func() error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func (k *keeper) wantEnded(t *testing.T, what string, want int) {
	t.Helper()
	if n := len(k.ended); n != want {
		t.Errorf("%s: %d have ended, want %d", what, n, want)
	}
}

func TestExternalHandle_Closed_EndsAfterLastUse(t *testing.T) {
	handles, k := newHandles(t, fsops.HandleLimits{}), newKeeper()
	k.keep(t, handles, "h")
	by, done := handles.External("h")
	if by != any(k) {
		t.Fatalf("the file of the handle is %v", by)
	}
	_, err := handles.ReadBlock("h", 1, 0, nil)
	wantHandleError(t, "read", err, fsops.HandleNotFound)
	wantHandleError(t, "write", handles.WriteBlock("h", []byte("x"), 0), fsops.HandleNotFound)
	for range 2 {
		if err := handles.CloseFile("h"); err != nil {
			t.Error(err)
		}
	}
	k.wantEnded(t, "in use", 0)
	if by, _ := handles.External("h"); by != nil {
		t.Error("the closed handle is found")
	}
	done()
	k.wantEnded(t, "not in use", 1)
	handles.Close()
	k.wantEnded(t, "the table closed", 1)
}

func TestExternalHandle_CountsInLimits(t *testing.T) {
	handles, k := newHandles(t, fsops.HandleLimits{Handles: 2}), newKeeper()
	openHandle(t, handles, "plain", build(t, "f = x")+"/f", fsops.ReadMode)
	if by, _ := handles.External("plain"); by != nil {
		t.Error("a handle of this process is reported as external")
	}
	unexpected := func() error { t.Error("the file is opened"); return nil }
	wantHandleError(t, "taken", handles.OpenExternal("plain", k.kept(), unexpected), fsops.HandleExists)
	refused := errors.New("refused")
	if err := handles.OpenExternal("h", k.kept(), func() error { return refused }); err != refused {
		t.Error(err)
	}
	k.keep(t, handles, "h")
	wantHandleError(t, "too many", handles.OpenExternal("more", k.kept(), unexpected), fsops.TooManyHandles)
	handles.Close()
	wantHandleError(t, "closed", handles.OpenExternal("late", k.kept(), unexpected), fsops.HandleNotFound)
	k.wantEnded(t, "the table closed", 1)
}

func TestExternalHandle_ClosedDuringOpen_Ends(t *testing.T) {
	handles, k := newHandles(t, fsops.HandleLimits{}), newKeeper()
	err := handles.OpenExternal("h", k.kept(), func() error { return handles.CloseFile("h") })
	wantHandleError(t, "closed while it was opened", err, fsops.HandleNotFound)
	k.wantEnded(t, "closed while it was opened", 1)
	if !handles.IsEmpty() {
		t.Error("the handle is kept")
	}
}

func TestExternalHandle_Idle_Ends(t *testing.T) {
	handles, k := newHandles(t, fsops.HandleLimits{Idle: time.Millisecond}), newKeeper()
	k.keep(t, handles, "h")
	<-k.ended
	if !handles.IsEmpty() {
		t.Error("the idle handle is found")
	}
}
