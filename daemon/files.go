package daemon

import (
	"net/http"
	"time"

	"github.com/execwire/execwire/gateway/filehttp"
	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/server"
)

// beginFile authenticates a request for a file: by its signature if it has one, and
// otherwise as any other.
func (c *clients) beginFile(r *http.Request, method, path string) (filehttp.Access, error) {
	access := filehttp.Access{Signed: r.URL.Query().Has(auth.FileURLSignature)}
	admit := admitFunc(c.authenticator.admitHTTP)
	if access.Signed {
		admit = func(r *http.Request, on *httpConn) (auth.Caller, clientAuthInfo, listen.Admission, error) {
			signed, caller, admission, err := c.authenticator.admitFileURL(r, on, method, path)
			access.MaxBytes = signed.MaxBytes
			return caller, newClientAuthInfo(signed.Credentials(), signedBy(r, on)), admission, err
		}
	}
	call, err := c.beginHTTP(r, admit)
	if err != nil {
		return filehttp.Access{}, server.MayCall(auth.Caller{}, err, "", nil)
	}
	call.info.api = apiHTTP
	access.Sent = c.metrics.sentFile
	access.Calls, access.Context, access.End = c.upstream(call.info), call.ctx, call.end
	return access, nil
}

// signedBy describes the client of a signed URL.
func signedBy(r *http.Request, on *httpConn) audit.Caller {
	by := auditedPeer(httpPeerOf(r, on, false))
	by.Credential = shownSignedURL
	return by
}

// admitFileURL is admitHTTP for a request by a signed URL, whatever other credentials it
// has. It counts invalid signatures.
func (a *authenticator) admitFileURL(r *http.Request, on *httpConn, method, path string) (auth.FileURL, auth.Caller, listen.Admission, error) {
	var signed auth.FileURL
	var caller auth.Caller
	if on.unknown != nil {
		return signed, caller, listen.Admission{}, &auth.Error{Kind: auth.KindNoPrincipal, Subject: "caller", Err: on.unknown}
	}
	err := a.urlAttempts.Verify(on.conn.RemoteAddr(), func() (err error) {
		signed, err = a.fileURLs.Verify(method, path, r.URL.Query(), time.Now())
		return err
	})
	if err == nil {
		caller, err = a.principals.Authenticate(signed.Credentials())
	}
	a.metrics.notAuthenticated(err)
	if err == nil {
		err = on.peer.Admit(caller.Self().Name)
	}
	return signed, caller, on.peer.Admission, err
}
