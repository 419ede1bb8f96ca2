package deploy

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// fleet runs the containers of the manifests as processes of this machine: each pod has a
// loopback address, and the files of secrets are in a directory.
type fleet struct {
	t         *testing.T
	root      string   // for the absolute paths of files
	addresses []string // of the nodes of the hub
	network   string   // the first three bytes of the addresses
}

// tomlBlock is a block of TOML in a document, after a comment with the path of its file.
var tomlBlock = regexp.MustCompile("(?s)```toml\n# (/etc/execwire/[a-z./]+)\n(.*?)```")

// tokenHash is the digest of the client's token in a table.
var tokenHash = regexp.MustCompile(`token_sha256 = "[0-9a-f]{64}"`)

func newFleet(t *testing.T) *fleet {
	t.Helper()
	random := make([]byte, 2)
	_, _ = rand.Read(random)
	f := &fleet{t: t, root: t.TempDir(), network: fmt.Sprintf("127.%d.%d.", 1+random[0]%200, random[1])}
	for i := range 3 {
		f.addresses = append(f.addresses, fmt.Sprint(f.network, i+1))
	}
	authority, certificate, key := certificates(t, append(f.addresses, f.network+"9"))
	f.write("/etc/execwire/tls/tls.crt", certificate)
	f.write("/etc/execwire/tls/tls.key", key)
	f.write("/etc/execwire/executor/ca.crt", authority)
	f.write("/etc/execwire/hub/url.key", secret())
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := tomlBlock.FindAllStringSubmatch(string(text), -1)
	if len(tables) != 2 {
		t.Fatalf("docs/kubernetes.md has %d tables of principals", len(tables))
	}
	token, agent := secret(), secret()
	f.write("/etc/execwire/hub/executor.token", token)
	f.write("/etc/execwire/executor/token", token)
	f.write("/etc/execwire/hub/agent.token", agent)
	for _, table := range tables {
		text := strings.ReplaceAll(table[2], "/etc/execwire/", f.root+"/etc/execwire/")
		text = tokenHash.ReplaceAllString(text, fmt.Sprintf("token_sha256 = \"%x\"", sha256.Sum256(agent)))
		f.write(table[1], []byte(text))
	}
	return f
}

func secret() []byte {
	random := make([]byte, 32)
	_, _ = rand.Read(random)
	return []byte(hex.EncodeToString(random))
}

func (f *fleet) write(path string, content []byte) {
	f.t.Helper()
	path = filepath.Join(f.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
		f.t.Fatal(err)
	}
}

// certificates returns an authority and a certificate for addresses, as PEM.
func certificates(t *testing.T, addresses []string) (authority, certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	encoded, keyErr := x509.MarshalPKCS8PrivateKey(private)
	if err := errors.Join(err, keyErr); err != nil {
		t.Fatal(err)
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return certificate, certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// start starts a container of a pod at an address. listening waits until it listens: a node
// of the hub does that only when it has found another.
func (f *fleet) start(container corev1.Container, program, pod, address string, arguments ...string) (listening func()) {
	f.t.Helper()
	c := exec.Command(binary(f.t, program), arguments...)
	c.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + f.root, "TMPDIR=" + f.t.TempDir()}
	for _, variable := range container.Env {
		value := variable.Value
		if variable.ValueFrom != nil { // the name of the pod
			value = pod
		}
		value = strings.ReplaceAll(value, "$(POD_NAME)", pod)
		value = strings.ReplaceAll(value, "0.0.0.0", address)
		const domain = "execwire-hub.execwire.svc.cluster.local"
		for i, node := range f.addresses {
			value = strings.ReplaceAll(value, fmt.Sprintf("execwire-hub-%d.%s", i, domain), node)
		}
		value = strings.ReplaceAll(value, domain+":", f.addresses[0]+":")
		if strings.HasPrefix(value, "/etc/") || strings.HasPrefix(value, "/var/") {
			value = filepath.Join(f.root, strings.Replace(value, "/var/lib/execwire-hub", "/var/lib/"+pod, 1))
		}
		c.Env = append(c.Env, variable.Name+"="+value)
	}
	c.Stderr = f.t.Output()
	out, err := c.StdoutPipe()
	if err := errors.Join(err, os.MkdirAll(filepath.Join(f.root, "var/lib", pod), 0o700), c.Start()); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		if err := c.Wait(); err != nil {
			f.t.Errorf("%s: %v", pod, err)
		}
	})
	return func() {
		f.t.Helper()
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			f.t.Fatalf("%s prints %q, %v", pod, line, err)
		}
	}
}

// binary returns the path of a program that make has built.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/" + name)
	if _, statErr := os.Stat(path); err != nil || statErr != nil {
		t.Fatalf("%v, %v: run make bin/%s", err, statErr, name)
	}
	return path
}

// await waits until a probe of a container gets 200.
func (f *fleet) await(container corev1.Container, address string) {
	f.t.Helper()
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	// As the kubelet: no verification.
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		url := fmt.Sprintf("%s://%s:%d%s", strings.ToLower(string(probe.HTTPGet.Scheme)), address, ports[probe.HTTPGet.Port.String()], probe.HTTPGet.Path)
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			answer, err := client.Get(url)
			if err == nil {
				_ = answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					break
				}
				err = errors.New(answer.Status)
			}
			if time.Now().After(deadline) {
				f.t.Fatalf("%s: %v", url, err)
			}
		}
	}
}

// containerOf returns the container of a manifest.
func containerOf(t *testing.T, manifest string) corev1.Container {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifestsDirectory, manifest))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range documents(t, string(text)) {
		if spec, _ := podOf(object); spec != nil {
			return spec.Containers[0]
		}
	}
	t.Fatal(manifest + " has no pod")
	return corev1.Container{}
}

// With the settings of the manifests and the tables of the document, three hubs become
// ready, an executor connects, and clients reach it through any of the hubs, and directly.
func TestManifests_Run(t *testing.T) {
	f := newFleet(t)
	hub, executor := containerOf(t, "hub.yaml"), containerOf(t, "executor.yaml")
	var listening []func()
	for i, address := range f.addresses {
		listening = append(listening, f.start(hub, "execwire-hub", fmt.Sprintf("execwire-hub-%d", i), address))
	}
	for i, address := range f.addresses {
		listening[i]()
		f.await(hub, address)
	}
	const pod = "execwire-executor-7d9f-x2x"
	f.start(executor, "execwire", pod, f.network+"9", executor.Command[1:]...)()
	f.await(executor, f.network+"9")
	run := func(arguments ...string) (string, error) {
		c := exec.Command(binary(t, "execwire"), append(arguments, "--tls-ca", f.root+"/etc/execwire/executor/ca.crt")...)
		c.Stderr = t.Output()
		out, err := c.Output()
		return string(out), err
	}
	for _, address := range f.addresses {
		at := []string{"--hub", "https://" + address + ":7430", "--token-file", f.root + "/etc/execwire/hub/agent.token"}
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			list, err := run(append([]string{"executors"}, at...)...)
			if err == nil && strings.Contains(list, pod) && strings.Contains(list, "\tconnected\t") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s lists %q, %v", address, list, err)
			}
		}
		// Other nodes send the client to the node of the executor.
		if out, err := run(slices.Concat([]string{"cat", "--executor", pod}, at, []string{"/proc/self/comm"})...); err != nil || out == "" {
			t.Errorf("through %s: %q, %v", address, out, err)
		}
	}
	if out, err := run("cat", "--server", "tls://"+f.network+"9:7420", "--token-file", f.root+"/etc/execwire/hub/agent.token", "/proc/self/comm"); err != nil || out == "" {
		t.Errorf("directly: %q, %v", out, err)
	}
}
