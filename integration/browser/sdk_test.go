package browser

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The process goes on only when the page has received its first output, and answered.
const converse = `async (url, token) => {
	const client = await execwire.connect(url, { token: token || undefined });
	const process = await client.start(["sh", "-c", "echo first; read line; echo \"got $line\"; exit 3"]);
	const decoder = new TextDecoder();
	let output = "", answered = false;
	for await (const { data } of process.output()) {
		output += decoder.decode(data, { stream: true });
		if (output.includes("first\n") && !answered) {
			answered = true;
			await process.write("second\n");
		}
	}
	const { code } = await process.wait();
	await client.close();
	return { output, code };
}`

func TestPage_OwnsAProcess(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, at, server, token string) {
		t.Helper()
		got := call[struct {
			Output string
			Code   int
		}](t, open(t, at), converse, server, token)
		if got.Output != "first\ngot second\n" || got.Code != 3 {
			t.Errorf("the process has exited with code %d after %q", got.Code, got.Output)
		}
	}
	t.Run("another origin", func(t *testing.T) {
		site := newSite(t)
		check(t, site.URL, serve(t, site.URL), "")
	})
	t.Run("the same origin", func(t *testing.T) {
		site := newSite(t)
		backend, err := url.Parse(serve(t, site.URL))
		if err != nil {
			t.Fatal(err)
		}
		site.backend = backend
		check(t, site.URL, site.URL, "")
	})
	t.Run("TLS", func(t *testing.T) {
		site := newSite(t)
		dir := t.TempDir()
		certificate, key := selfSigned(t, dir)
		const token = "a-token-that-is-long-enough-to-be-one"
		write(t, filepath.Join(dir, "token"), token)
		principals := write(t, filepath.Join(dir, "principals.toml"),
			fmt.Sprintf("[[principal]]\nname = \"page\"\ntoken_file = %q\nallow = [\"all\"]\n", filepath.Join(dir, "token")))
		env := []string{"EXECWIRE_TLS_CERT=" + certificate, "EXECWIRE_TLS_KEY=" + key, "EXECWIRE_PRINCIPALS_FILE=" + principals}
		listening := start(t, env, "execwire", "serve", "--until-stdin-closes", "--listen", "tls://127.0.0.1:0", "--allowed-origins", site.URL)
		check(t, site.URL, strings.Replace(listening, "tls://", "https://", 1), token)
	})
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// selfSigned writes a certificate for 127.0.0.1 and its key.
func selfSigned(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}))),
		write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})))
}

// Every connection is cut after some output, in the middle of messages.
func TestPage_Cuts_LosesNothing(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	got := call[struct {
		Bytes, Resumed int
		Equal          bool
	}](t, open(t, site.URL), `async (url) => {
		const client = await execwire.connect(url);
		const sent = new Uint8Array(3 << 20);
		for (let i = 0, state = 1; i < sent.length; i++) {
			state ^= state << 13, state ^= state >>> 17, state ^= state << 5;
			sent[i] = state;
		}
		const cat = await client.start(["cat"]);
		const writing = cat.write(sent).then(() => cat.closeStdin());
		let bytes = 0, equal = true;
		for await (const { data } of cat.output()) {
			equal &&= data.every((byte, i) => byte === sent[bytes + i]);
			bytes += data.length;
		}
		await writing;
		const { resumed } = await cat.wait();
		await client.close();
		return { bytes, resumed, equal };
	}`, cutting(t, serve(t, site.URL), 400_000))
	if got.Bytes != 3<<20 || !got.Equal || got.Resumed == 0 {
		t.Errorf("received %d bytes over %d cuts, equal: %t", got.Bytes, got.Resumed, got.Equal)
	}
}

// cutting returns the URL of a proxy that closes each connection after some bytes of the server.
func cutting(t *testing.T, server string, after int64) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	pass := func(client net.Conn) {
		upstream, err := net.Dial("tcp", strings.TrimPrefix(server, "http://"))
		if err != nil {
			t.Error(err)
			_ = client.Close()
			return
		}
		end := func() {
			_ = client.Close()
			_ = upstream.Close()
		}
		serving.Go(func() {
			defer end()
			_, _ = io.Copy(upstream, client)
		})
		defer end()
		defer context.AfterFunc(t.Context(), end)()
		_, _ = io.CopyN(client, upstream, after)
	}
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { pass(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return "http://" + listener.Addr().String()
}

// A browser makes six connections. Streams, and writes to processes that do not read, must not
// take all of them from acknowledgements.
func TestPage_ManyProcesses_DelayNoAcknowledgement(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	got := call[struct {
		Bytes   int
		Refused string
		Code    int
	}](t, open(t, site.URL), `async (url) => {
		const client = await execwire.connect(url);
		const stuck = [];
		for (let i = 0; i < 3; i++) {
			const process = await client.start(["sh", "-c", "sleep 1000"]);
			process.write(new Uint8Array(4 << 20)).catch(() => undefined);
			process.waitFor({ port: 1 }).catch(() => undefined);
			stuck.push(process);
		}
		const cat = await client.start(["cat"]);
		const sent = new Uint8Array(4 << 20);
		const writing = cat.write(sent).then(() => cat.closeStdin());
		let bytes = 0, refused = "";
		for await (const { data } of cat.output()) {
			bytes += data.length;
			if (refused === "") {
				refused = await client.run(["true"]).then(() => "no", (error) => error.name + ": " + error.message);
			}
		}
		await writing;
		await cat.wait();
		await Promise.all(stuck.map((process) => process.close()));
		const { exit } = await client.run(["sh", "-c", "exit 3"]);
		await client.close();
		return { bytes, refused, code: exit.code };
	}`, serve(t, site.URL))
	if got.Bytes != 4<<20 || got.Code != 3 {
		t.Errorf("received %d bytes, and then exit code %d", got.Bytes, got.Code)
	}
	if !strings.HasPrefix(got.Refused, "UsageError: 4 streams are open") {
		t.Errorf("the fifth process is answered by %q", got.Refused)
	}
}

// startMessage is a valid request of StartProcess, with the shape of a form of text/plain.
const startMessage = `{"processId":"%s","command":{"direct":{"argv":["true"],"workingDirectory":"/","env":{"a":"="}}}}`

// sendSimply sends a request in the ways that a browser allows to every page, without asking.
const sendSimply = `async (server, message) => {
	const url = server + "/execwire.v1.ProcessService/StartProcess";
	const results = [];
	for (const type of ["text/plain", "application/x-www-form-urlencoded", ""]) {
		const body = type ? new Blob([message], { type }) : new TextEncoder().encode(message);
		const response = await fetch(url, { method: "POST", mode: "no-cors", body });
		results.push(response.type);
	}
	results.push(navigator.sendBeacon(url, new Blob([message], { type: "text/plain" })));
	await fetch(url + "?encoding=json&connect=v1&message=" + encodeURIComponent(message), { mode: "no-cors" });
	await new Promise((resolve) => {
		const [name, value] = message.split("=");
		document.body.innerHTML = '<iframe name=answer></iframe><form method=post enctype=text/plain target=answer><input type=hidden></form>';
		const form = document.querySelector("form");
		Object.assign(document.querySelector("input"), { name, value });
		form.action = url;
		document.querySelector("iframe").addEventListener("load", resolve, { once: true });
		form.submit();
	});
	return results;
}`

func TestPage_SimpleRequests_DoNothing(t *testing.T) {
	t.Parallel()
	site, other := newSite(t), newSite(t)
	server := serve(t, site.URL)
	for name, at := range map[string]string{"allowed": site.URL, "other": other.URL} {
		call[[]any](t, open(t, at), sendSimply, server, fmt.Sprintf(startMessage, name))
	}
	// The message is valid, from the right page and of the right type.
	status := call[int](t, open(t, site.URL), `async (server, message) =>
		(await fetch(server + "/execwire.v1.ProcessService/StartProcess", { method: "POST", headers: { "content-type": "application/json" }, body: message })).status`,
		server, fmt.Sprintf(startMessage, "asked"))
	if status != 200 {
		t.Errorf("a call is answered with status %d", status)
	}
	if got := execwire(t, "ps", "--all", "--quiet", "--server", strings.Replace(server, "http://", "tcp://", 1)); got != "asked\n" {
		t.Errorf("there are the processes %q, want only the one that was asked for", got)
	}
}

func TestPage_OtherOrigin_IsRefused(t *testing.T) {
	t.Parallel()
	site, other := newSite(t), newSite(t)
	server := serve(t, site.URL)
	refused := call[string](t, open(t, other.URL), `async (url) => execwire.connect(url).then(() => "", (error) => error.name + ": " + error.message)`, server)
	if !strings.HasPrefix(refused, "ConnectionError: ") || !strings.Contains(refused, other.URL+" (its setting allowed_origins)") {
		t.Errorf("a page of another origin is answered by %q", refused)
	}
}

func TestPage_Files(t *testing.T) {
	t.Parallel()
	site, other := newSite(t), newSite(t)
	server := serve(t, site.URL)
	path := filepath.Join(t.TempDir(), "pixel one.png")
	made := call[struct{ Get, Put, Tag, Digest, Read, Missing, Exists, Dots string }](t, open(t, site.URL), `async (url, path) => {
		const client = await execwire.connect(url);
		// The smallest image: one pixel.
		const image = Uint8Array.from(atob("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="), (c) => c.charCodeAt(0));
		const put = await client.files.signUrl(path, { method: "PUT", maxBytes: 1000 });
		const written = await fetch(put.url, { method: "PUT", body: new Blob([image]) });
		const get = await client.files.signUrl(path);
		const response = await fetch(get.url);
		const read = new Uint8Array(await response.arrayBuffer());
		const name = async (promise) => promise.then(() => "", (error) => error.name);
		await client.files.write(path + ".txt", "text by the SDK");
		return {
			get: get.url, put: put.url,
			tag: response.headers.get("etag") ?? "", digest: written.headers.get("repr-digest") ?? "",
			read: String(read) === String(image) ? await client.files.read(path + ".txt", { text: true }) : "another image",
			missing: await name(client.files.write(path + "/none", "x")),
			exists: await name(client.files.write(path, "x", { ifMissing: true })),
			dots: await name(client.files.write(path + "/../../dots", "x")),
		};
	}`, server, path)
	if made.Tag == "" || made.Digest == "" || made.Read != "text by the SDK" {
		t.Errorf("the page reads ETag %q, digest %q, file %q", made.Tag, made.Digest, made.Read)
	}
	if made.Missing != "NotDirectoryError" || made.Exists != "PathExistsError" || made.Dots != "UsageError" {
		t.Errorf("wrong writes are %q, %q and %q", made.Missing, made.Exists, made.Dots)
	}
	// Other pages can show what they have a URL for, and nothing else.
	shown := call[[]int](t, open(t, other.URL), `async (...urls) => Promise.all(urls.map((src) => new Promise((resolve) => {
		const image = Object.assign(new Image(), { src });
		image.onload = () => resolve(image.naturalWidth);
		image.onerror = () => resolve(0);
	})))`, made.Get, server+"/v1/files"+strings.ReplaceAll(path, " ", "%20"), made.Put)
	if fmt.Sprint(shown) != "[1 0 0]" {
		t.Errorf("images by a signed URL, without a signature and by one for uploads have widths %v", shown)
	}
}
