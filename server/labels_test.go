package server_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/server"
)

// withLabels adds labels to a start request.
func withLabels(labels map[string]string) func(*execwirev1.StartProcessRequest, *execwirev1.DirectCommand) {
	return func(r *execwirev1.StartProcessRequest, _ *execwirev1.DirectCommand) { r.Labels = labels }
}

// manyLabels returns labels with the longest names and values.
func manyLabels(count int) map[string]string {
	labels := make(map[string]string, count)
	for i := range count {
		labels[fmt.Sprintf("%0*d", server.MaxLabelNameBytes, i)] = strings.Repeat("x", server.MaxLabelValueBytes)
	}
	return labels
}

func TestLabels_AreReported(t *testing.T) {
	f := newFixture(t)
	labels := manyLabels(server.MaxLabels)
	started, err := f.processes.StartProcess(f.ctx, changed(withLabels(labels)))
	if err != nil {
		t.Fatal(err)
	}
	described, err := f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{ProcessId: "p"})
	if err != nil {
		t.Fatal(err)
	}
	listed, err := f.processes.ListProcesses(f.ctx, &execwirev1.ListProcessesRequest{})
	if err != nil || len(listed.GetProcesses()) != 1 {
		t.Fatalf("%v, %v", listed, err)
	}
	for where, p := range map[string]*execwirev1.Process{
		"the start": started.GetProcess(), "GetProcess": described.GetProcess(), "ListProcesses": listed.GetProcesses()[0],
	} {
		if !maps.Equal(p.GetLabels(), labels) {
			t.Errorf("%s: the labels are %v", where, p.GetLabels())
		}
	}
}
