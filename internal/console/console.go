// Package console serves the console, a web page, and the calls of that page: by [Console] for
// one server, which execwire console does, and by [Hub] for the executors of a hub. The page
// comes with the program, and loads nothing else.
package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/connectrpc"
	"github.com/execwire/execwire/gateway/filehttp"
	"github.com/execwire/execwire/gen/web"
	"github.com/execwire/execwire/internal/httpstall"
)

const (
	// messageBytes is the largest message of the page.
	messageBytes = 8 << 20
	// headerTimeout is how long a client may take for the header of a request, and
	// stallTimeout how long for the next part of a body or a response.
	headerTimeout = 10 * time.Second
	stallTimeout  = time.Minute
	// maxLinks is how many links that were not opened yet are valid; the oldest end first.
	maxLinks = 16
	// secretBytes is the length of the secrets of links and cookies.
	secretBytes = 32
)

const (
	// sessionPath is where the page gets its cookie.
	sessionPath = "/session"
	// filesPrefix is where files are, as at a server.
	filesPrefix = "/v1/files"
)

const noSession = "open the console with a link of execwire console: this browser has not opened one, or the command has ended"

// policy allows the page its own script, and no other. Package xterm.js makes style
// elements; images are previews of files. The player of recordings compiles WebAssembly that
// is in the script.
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; font-src 'self' data:; " +
	"img-src 'self' blob: data:; media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Console serves the page. The first browser that opens a link of [Console.Link] gets a
// cookie, and only requests with it are served. It may be used concurrently.
type Console struct {
	listener net.Listener
	cookie   string // its name: cookies are not separated by port
	calls    *connectrpc.Handler
	files    *filehttp.Handler

	mu       sync.Mutex
	links    [][sha256.Size]byte // guarded by mu; digests of the secrets of links that were not opened
	sessions [][sha256.Size]byte // guarded by mu; and of cookies
}

// New returns a console that passes calls to a server, with all that the connection may do.
// The listener must be on loopback. Serve closes it.
func New(listener net.Listener, server grpc.ClientConnInterface) *Console {
	c := &Console{listener: listener, cookie: "execwire_console_" + newSecret()[:8]}
	c.calls = connectrpc.New(connectrpc.Config{MessageBytes: messageBytes, Begin: func(r *http.Request, _ string) (connectrpc.Call, error) {
		return connectrpc.Call{Context: r.Context(), Conn: server, End: func() {}}, nil
	}})
	c.files = filehttp.NewHandler(filehttp.Config{Prefix: filesPrefix, Begin: func(*http.Request, string, string) (filehttp.Access, error) {
		return filehttp.Access{Calls: server}, nil
	}})
	return c
}

// Link returns a URL that opens the page once. The secret in it is in the fragment, which
// browsers do not send.
func (c *Console) Link() string {
	secret := newSecret()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links = append(c.links, digest(secret))
	c.links = c.links[max(0, len(c.links)-maxLinks):]
	return fmt.Sprintf("http://%s/#token=%s", c.listener.Addr(), secret)
}

// Serve serves until ctx ends, and returns once all requests have ended. The error is that
// of the listener.
func (c *Console) Serve(ctx context.Context) error {
	requests, end := context.WithCancelCause(context.Background())
	server := &http.Server{
		Handler: c, ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(c.listener) }()
	select {
	case err := <-served:
		end(nil)
		return err
	case <-ctx.Done():
	}
	end(context.Cause(ctx))
	_ = server.Close()
	<-served
	return nil
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setSafety(w.Header())
	part, isPart := web.Assets[strings.TrimPrefix(r.URL.Path, "/")]
	if r.URL.Path == "/" {
		part, isPart = web.Assets["index.html"]
	}
	switch problem := c.foreign(r, isPart); {
	case problem != "":
		http.Error(w, problem, http.StatusForbidden)
	case isPart:
		servePart(w, r, part)
	case r.URL.Path == sessionPath:
		c.serveSession(w, r)
	case !c.hasSession(r):
		http.Error(w, noSession, http.StatusUnauthorized)
	default:
		c.serveCalls(w, r)
	}
}

// setSafety sets what keeps pages of other sites away from every response.
func setSafety(header http.Header) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// foreign returns why a request is not one of the page or of a user who opens it, or
// nothing. A page of another site has another Origin, and one whose name leads to this
// address another Host. A user may follow a link from another site to the page itself.
func (c *Console) foreign(r *http.Request, isPart bool) string {
	_, port, _ := net.SplitHostPort(c.listener.Addr().String())
	if r.Host != c.listener.Addr().String() && r.Host != "localhost:"+port {
		return fmt.Sprintf("the console is at http://%s, not at %q", c.listener.Addr(), r.Host)
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return fmt.Sprintf("a page of %q cannot use the console", origin)
	}
	if site := r.Header.Get("Sec-Fetch-Site"); !isPart && site != "" && site != "same-origin" && site != "none" {
		return "a page of another site cannot use the console"
	}
	return ""
}

// serveSession exchanges the secret of a link for a cookie by POST, says by GET whether
// there is one, and makes a link for another browser by PUT.
func (c *Console) serveSession(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case r.Method == http.MethodPost:
		secret, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
		if err != nil || !c.open(string(secret)) {
			http.Error(w, "the link was opened before, or the command that printed it has ended", http.StatusForbidden)
			return
		}
		http.SetCookie(w, &http.Cookie{
			Name: c.cookie, Value: c.newSession(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		w.WriteHeader(http.StatusNoContent)
	case !c.hasSession(r):
		http.Error(w, noSession, http.StatusUnauthorized)
	case r.Method == http.MethodPut:
		_, _ = io.WriteString(w, c.Link()) // the client may be gone
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// open reports whether a secret is that of a link, which it ends.
func (c *Console) open(secret string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := find(c.links, secret)
	if at < 0 {
		return false
	}
	c.links = append(c.links[:at], c.links[at+1:]...)
	return true
}

// newSession returns the value of a cookie. Each link makes one.
func (c *Console) newSession() string {
	secret := newSecret()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions = append(c.sessions, digest(secret))
	return secret
}

func (c *Console) hasSession(r *http.Request) bool {
	cookie, err := r.Cookie(c.cookie)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return find(c.sessions, cookie.Value) >= 0
}

// serveCalls serves the calls of the page.
func (c *Console) serveCalls(w http.ResponseWriter, r *http.Request) {
	bounded, r := httpstall.Bound(w, r, stallTimeout)
	defer bounded.Extend()
	if strings.HasPrefix(r.URL.Path, filesPrefix+"/") {
		c.files.ServeHTTP(bounded, r)
		return
	}
	c.calls.ServeHTTP(bounded, r)
}

// servePart serves a part of the page, which needs no cookie: it is in every copy of this
// program.
func servePart(w http.ResponseWriter, r *http.Request, part web.Asset) {
	header := w.Header()
	header.Set("Content-Type", part.Type)
	header.Set("Content-Encoding", "gzip")
	header.Set("Content-Security-Policy", policy)
	header.Set("Cache-Control", "no-cache")
	if r.Method != http.MethodHead {
		_, _ = w.Write(part.Gzip) // the client may be gone
	}
}

func newSecret() string {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // it never fails
	return base64.RawURLEncoding.EncodeToString(secret)
}

func digest(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// find returns the index of a secret among digests, or -1.
func find(digests [][sha256.Size]byte, secret string) int {
	wanted := digest(secret)
	for i, d := range digests {
		if subtle.ConstantTimeCompare(d[:], wanted[:]) == 1 {
			return i
		}
	}
	return -1
}
