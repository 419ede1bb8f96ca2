package preview

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/relay/rendezvous"
)

// Names of the cookie. Browsers accept the first only from the host itself, with TLS, so
// that the preview of another port cannot set it.
const (
	secureCookie = "__Host-execwire-preview"
	plainCookie  = "execwire-preview"
)

func cookieName(secure bool) string {
	if secure {
		return secureCookie
	}
	return plainCookie
}

// isSecure reports whether the client of r uses TLS.
func (p *Previews) isSecure(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(p.config.PublicURL, "https://")
}

// access is what a request was authorized by.
type access struct {
	principal string
	link      *link // nil: the caller itself is the principal
}

// authorize returns the access of a request: by a cookie, or as a principal that may
// connect to the executor. Whatever a browser adds by itself, as it does a cookie, does
// not authorize the pages of other origins.
func (p *Previews) authorize(r *http.Request, to target) (access, error) {
	by, member, err := p.identify(r, to)
	if err != nil {
		return access{}, err
	}
	if err := rendezvous.MayConnect(member, to.executor); err != nil {
		return access{}, err
	}
	if (by.link != nil || !hasBearer(r)) && !fromSameOrigin(r) {
		return access{}, &rendezvous.Refusal{Status: http.StatusForbidden, Code: rendezvous.CodeOriginRefused,
			Message: "pages of other origins, also of other previews, may open a preview and not send requests to it: pass them on from the preview's own server"}
	}
	return by, nil
}

// identify returns the access by the cookie or else the credentials of a request, and
// the present permissions of its principal.
func (p *Previews) identify(r *http.Request, to target) (by access, member auth.Member, err error) {
	refused := error(nil)
	for _, cookie := range r.CookiesNamed(cookieName(p.isSecure(r))) {
		l, err := p.findLink(cookie.Value, to)
		if err != nil {
			refused = err
			continue
		}
		member, err := p.config.Recall(r, auth.Principal{Name: l.claim.Principal})
		return access{principal: l.claim.Principal, link: l}, member, err
	}
	if refused != nil {
		r.Header.Del("Authorization") // the application's, as with a valid link: no failed attempt at the hub
	}
	member, err = p.config.Authenticate(r)
	if failed, ok := errors.AsType[*auth.Error](err); ok && failed.Kind == auth.KindCredentialMissing {
		err = cmp.Or(refused, unauthorized("a preview needs a link, which execwire preview makes, or a bearer token"))
	}
	return access{principal: member.Principal.Name}, member, err
}

// hasBearer reports whether a request has a token, which browsers never add by
// themselves.
func hasBearer(r *http.Request) bool {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer")
}

// fromSameOrigin reports whether a request was made by a page of its own host, by the
// user, by a link that leaves another page, or by a program that is not a browser.
// Cookies with SameSite=Lax do not tell: all previews are of the same site.
func fromSameOrigin(r *http.Request) bool {
	site, origins := r.Header.Get("Sec-Fetch-Site"), r.Header.Values("Origin")
	switch {
	case site == "same-origin", site == "none":
		return true
	case site != "":
		return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
			r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	case len(origins) == 0:
		return true
	}
	origin, err := url.Parse(origins[0])
	return err == nil && len(origins) == 1 && strings.EqualFold(origin.Host, r.Host)
}

// redeem sets the cookie for a link and redirects to the same URL without it. rest is
// the query without the link.
func (p *Previews) redeem(w http.ResponseWriter, r *http.Request, to target, signed, rest string) error {
	l, err := p.findLink(signed, to)
	if err != nil {
		return err
	}
	member, err := p.config.Recall(r, auth.Principal{Name: l.claim.Principal})
	if err == nil {
		err = rendezvous.MayConnect(member, to.executor)
	}
	if err != nil {
		return err
	}
	end, err := p.config.Audit.Begin(r, l.claim.Principal, &audit.Record{Action: "preview.redeem", Executor: to.executor, Address: portOf(to), Caller: audit.Caller{Credential: "signed-url"}})
	if err != nil {
		return err
	}
	defer end(nil)
	secure := p.isSecure(r)
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(secure), Value: signed, Path: "/", Expires: l.expires(), MaxAge: int(time.Until(l.expires()).Seconds()) + 1,
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	})
	// Absolute: a path may begin with two slashes.
	location := url.URL{Scheme: schemeOf(secure), Host: r.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: rest}
	w.Header().Set("Location", location.String())
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

func schemeOf(secure bool) string {
	if secure {
		return "https"
	}
	return "http"
}

func unauthorized(message string) error {
	return &rendezvous.Refusal{Status: http.StatusUnauthorized, Code: rendezvous.CodeUnauthorized, Message: message}
}
