package server

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/session"
)

// sessionMethods returns the RPCs of the contract that concern sessions.
func sessionMethods() (methods []string) {
	for _, file := range []protoreflect.FileDescriptor{
		execwirev1.File_execwire_v1_process_service_proto, execwirev1.File_execwire_v1_session_proto, execwirev1.File_execwire_v1_port_proto,
	} {
		services := file.Services()
		for i := range services.Len() {
			list := services.Get(i).Methods()
			for j := range list.Len() {
				methods = append(methods, "/"+string(services.Get(i).FullName())+"/"+string(list.Get(j).Name()))
			}
		}
	}
	return methods
}

func TestAccess_EverySessionRPC_NeedsAccess(t *testing.T) {
	for _, method := range sessionMethods() {
		if permission := needs[method].permission; permission&(auth.View|auth.Start|auth.Control|auth.Session|auth.Ports) == 0 {
			t.Errorf("%s needs the permission %v, from which no access follows", method, permission)
		}
	}
}

func TestAccess_UnknownRPC_NeedsOwner(t *testing.T) {
	if access := accessFor(context.Background()); access != session.AccessOwner {
		t.Errorf("the required access is %v", access)
	}
}

func TestConversions_PoliciesAndAccess_RoundTrip(t *testing.T) {
	for number := range execwirev1.WhenDetached_name {
		m := execwirev1.WhenDetached(number)
		policy, ok := whenDetached[m]
		if !ok || keyOf(whenDetached, policy) != m {
			t.Errorf("%v becomes %v (known: %v), which becomes %v", m, policy, ok, keyOf(whenDetached, policy))
		}
	}
	for number := range execwirev1.SessionAccess_name {
		if m := execwirev1.SessionAccess(number); keyOf(sessionAccesses, sessionAccesses[m]) != m {
			t.Errorf("%v becomes %v", m, keyOf(sessionAccesses, sessionAccesses[m]))
		}
	}
}

func TestAccess_MatchesSessionDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/sessions.md")
	if err != nil {
		t.Fatal(err)
	}
	degrees := map[string]session.Access{
		"`VIEW`": session.AccessView, "`WRITE`": session.AccessWrite, "the principal itself": session.AccessOwner,
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		access, ok := degrees[strings.TrimPrefix(cells[0], "| ")]
		if !ok || len(cells) != 2 {
			continue
		}
		for _, name := range regexp.MustCompile("`([A-Z][A-Za-z]+)`( with)?").FindAllStringSubmatch(cells[1], -1) {
			service := "ProcessService"
			for word, of := range map[string]string{"Session": "SessionService", "Port": "PortService"} {
				if strings.Contains(name[1], word) {
					service = of
				}
			}
			method := "/execwire.v1." + service + "/" + name[1]
			if name[2] != "" { // an option needs more access
				continue
			}
			documented[method] = true
			if accessOf(method) != access {
				t.Errorf("%s is documented with access %v, it needs %v", method, access, accessOf(method))
			}
		}
	}
	for _, method := range sessionMethods() {
		if !documented[method] && !strings.HasSuffix(method, "/ListSessions") {
			t.Errorf("%s is not documented", method)
		}
	}
}
