// Package deploy tests what deploy/helm, deploy/kubernetes and deploy/monitoring describe. It is
// in a module of its own, for Helm and the types of Kubernetes.
package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartDirectory     = "../../deploy/helm/execwire"
	manifestsDirectory = "../../deploy/kubernetes"
	// namespace is that of the manifests.
	namespace = "execwire"
)

type values = map[string]any

// render renders the chart and returns the text of its templates by name.
func render(t *testing.T, with values) map[string]string {
	t.Helper()
	chart, err := loader.Load(chartDirectory)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, with, chartutil.ReleaseOptions{Name: "execwire", Namespace: namespace, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	rendered := map[string]string{}
	for path, text := range files {
		if strings.TrimSpace(text) != "" {
			rendered[filepath.Base(path)] = text
		}
	}
	return rendered
}

// documents returns the objects of a manifest by kind. An unknown kind or field fails.
func documents(t *testing.T, text string) (objects []any) {
	t.Helper()
	for _, document := range strings.Split("\n"+text, "\n---\n") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		object := map[string]any{
			"v1/Service": &corev1.Service{}, "v1/Pod": &corev1.Pod{},
			"apps/v1/StatefulSet": &appsv1.StatefulSet{}, "apps/v1/Deployment": &appsv1.Deployment{},
			"policy/v1/PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "networking.k8s.io/v1/NetworkPolicy": &networkingv1.NetworkPolicy{},
		}[head.APIVersion+"/"+head.Kind]
		if object == nil {
			t.Fatalf("%+v is of no kind that is expected:\n%s", head, document)
		}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

// podOf returns the pod of an object, and its labels.
func podOf(object any) (spec *corev1.PodSpec, labels map[string]string) {
	switch o := object.(type) {
	case *corev1.Pod:
		return &o.Spec, o.Labels
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec, o.Spec.Template.Labels
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec, o.Spec.Template.Labels
	}
	return nil, nil
}

// selectorOf returns which pods an object selects, if it does.
func selectorOf(object any) map[string]string {
	switch o := object.(type) {
	case *corev1.Service:
		return o.Spec.Selector
	case *appsv1.StatefulSet:
		return o.Spec.Selector.MatchLabels
	case *appsv1.Deployment:
		return o.Spec.Selector.MatchLabels
	case *policyv1.PodDisruptionBudget:
		return o.Spec.Selector.MatchLabels
	case *networkingv1.NetworkPolicy:
		return o.Spec.PodSelector.MatchLabels
	}
	return nil
}

func TestChart_Lint(t *testing.T) {
	result := lint.All(chartDirectory, values{}, namespace, true)
	for _, message := range result.Messages {
		if message.Severity >= support.WarningSev {
			t.Error(message)
		}
	}
}

// Whatever the values, the objects are valid, safe, and name settings that exist.
func TestChart_Values(t *testing.T) {
	for name, test := range map[string]struct {
		with  values
		files []string
		user  bool
	}{
		"default":   {values{}, []string{"executor.yaml", "hub.yaml"}, true},
		"OpenShift": {values{"user": values{"runAsUser": nil, "runAsGroup": nil, "fsGroup": nil}}, []string{"executor.yaml", "hub.yaml"}, false},
		"one hub": {values{"hub": values{"replicas": 1, "settings": values{"stream_grace": "1m"}, "storageClass": "fast", "publicDomain": "hub.example.org",
			"from": []any{values{"namespaceSelector": values{}}}}, "executor": values{"enabled": false}}, []string{"hub.yaml"}, true},
		"executors": {values{"hub": values{"enabled": false}, "imagePullSecrets": []any{values{"name": "registry"}},
			"executor": values{"hub": "https://hub.example.org", "settings": values{"require_sandbox": "read-only"}}}, []string{"executor.yaml"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			files := render(t, test.with)
			if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, test.files) {
				t.Errorf("the chart has %q, want %q", got, test.files)
			}
			for _, text := range files {
				objects := documents(t, text)
				expectPods(t, objects, test.user)
			}
		})
	}
}

// The manifests are the chart with its defaults. EXECWIRE_UPDATE_DOCS=1 writes them.
func TestManifests_AreTheChart(t *testing.T) {
	for name, text := range render(t, values{}) {
		path := filepath.Join(manifestsDirectory, name)
		want := fmt.Sprintf("# helm template execwire deploy/helm/execwire --namespace %s, written by make deploy-manifests.\n%s\n", namespace, strings.TrimSpace(trailingSpace.ReplaceAllString(text, "\n")))
		if os.Getenv("EXECWIRE_UPDATE_DOCS") != "" {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is out of date, %v: run make deploy-manifests", path, err)
		}
	}
}

// trailingSpace is what templates leave at the ends of lines, and lines without text.
var trailingSpace = regexp.MustCompile(`([ \t]*\n)+`)

func TestManifests_AreValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(manifestsDirectory, "*.yaml"))
	if err != nil || len(files) != 3 {
		t.Fatalf("the manifests are %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		expectPods(t, documents(t, string(text)), true)
	}
}

// expectPods checks the pods of a manifest, and that all else selects them.
func expectPods(t *testing.T, objects []any, withUser bool) {
	t.Helper()
	pods := 0
	for _, object := range objects {
		spec, labels := podOf(object)
		if spec == nil {
			continue
		}
		pods++
		expectRestricted(t, spec, withUser)
		for _, other := range objects {
			for key, value := range selectorOf(other) {
				if labels[key] != value {
					t.Errorf("%T selects %s=%s, the pod has %v", other, key, value, labels)
				}
			}
		}
		volumes := map[string]bool{}
		for _, volume := range spec.Volumes {
			volumes[volume.Name] = true
			if volume.Secret != nil && *volume.Secret.DefaultMode != 0o440 {
				t.Errorf("the secret %s has mode %o", volume.Secret.SecretName, *volume.Secret.DefaultMode)
			}
		}
		if set, ok := object.(*appsv1.StatefulSet); ok {
			for _, claim := range set.Spec.VolumeClaimTemplates {
				volumes[claim.Name] = true
			}
		}
		for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
			expectSettings(t, container)
			for _, mount := range container.VolumeMounts {
				if !volumes[mount.Name] {
					t.Errorf("%s mounts %s, which is no volume", container.Name, mount.Name)
				}
			}
			for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
				if probe != nil && probe.HTTPGet != nil && !slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == probe.HTTPGet.Port.String() }) {
					t.Errorf("%s probes port %v, which it does not have", container.Name, probe.HTTPGet.Port.String())
				}
			}
		}
	}
	if pods != 1 {
		t.Errorf("the manifest has %d pods", pods)
	}
}

// expectRestricted checks what the pod security standard "restricted" requires, and more.
func expectRestricted(t *testing.T, spec *corev1.PodSpec, withUser bool) {
	t.Helper()
	s := spec.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the security context of the pod is %+v", s)
	}
	if (s.RunAsUser != nil) != withUser || (s.FSGroup != nil) != withUser {
		t.Errorf("the user is %v, of group %v", s.RunAsUser, s.FSGroup)
	}
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken || spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
		t.Error("the pod gets a token, or variables of services")
	}
	if spec.HostNetwork || spec.HostPID || spec.HostIPC || spec.ShareProcessNamespace != nil {
		t.Error("the pod shares namespaces")
	}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		c := container.SecurityContext
		if c == nil || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem ||
			c.Capabilities == nil || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 || c.Privileged != nil {
			t.Errorf("the security context of %s is %+v", container.Name, c)
		}
		if container.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s has no limit of memory", container.Name)
		}
	}
}

// settingRow is a row of the table of settings.
var settingRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|")

// settings returns the variables of all settings of a document.
func settings(t *testing.T, document, prefix string) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + document)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := bytes.Cut(text, []byte("<!-- settings: begin -->"))
	for _, row := range settingRow.FindAllSubmatch(table, -1) {
		names = append(names, prefix+strings.ToUpper(string(row[1])))
	}
	if len(names) < 20 {
		t.Fatal(errors.New(document + " has no table of settings"))
	}
	return names
}

// expectSettings checks that variables are those of settings.
func expectSettings(t *testing.T, container corev1.Container) {
	t.Helper()
	known := append(settings(t, "configuration.md", "EXECWIRE_"), "EXECWIRE_SERVER") // of clients
	if container.Name == "hub" {
		known = settings(t, "hub.md", "EXECWIRE_HUB_")
	}
	for _, variable := range container.Env {
		if strings.HasPrefix(variable.Name, "EXECWIRE_") && !slices.Contains(known, variable.Name) {
			t.Errorf("%s is not a setting", variable.Name)
		}
	}
}
