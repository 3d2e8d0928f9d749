// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

// tokenParameter is the part of the address that has the key.
const tokenParameter = "token"

// headers are those of every answer.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"Cache-Control":                "no-store",
}

// guard lets nobody in but the user's own browser. It is safe for concurrent use.
type guard struct {
	next   http.Handler
	key    string // of the address that is printed, and of the cookie
	cookie string // its name: browsers send cookies to all ports of a host

	mu   sync.Mutex
	once string // another key, which is good for one request
}

func newGuard(port string, next http.Handler) *guard {
	return &guard{next: next, key: rand.Text(), cookie: "kubedevice-map-" + port}
}

// onceKey returns a key that is good for one request. What starts a browser is told this one:
// everybody on the machine can read the arguments of a program.
func (g *guard) onceKey() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.once = rand.Text()
	return g.once
}

// ServeHTTP serves who may be served.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	switch {
	case !isLoopback(r.Host):
		http.Error(w, fmt.Sprintf("The host %q is not this machine: use 127.0.0.1 or localhost.", r.Host),
			http.StatusForbidden)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "The map can be read, nothing else.", http.StatusMethodNotAllowed)
	case r.Header.Get("Origin") != "" && r.Header.Get("Origin") != "http://"+r.Host:
		http.Error(w, "Another page may not read the map.", http.StatusForbidden)
	case r.URL.Path == "/" && g.opens(r.URL.Query().Get(tokenParameter)):
		// The page is the answer, no redirection: a browser that comes from elsewhere would follow
		// it without the cookie. The page's script takes the key out of the address.
		http.SetCookie(w, &http.Cookie{
			Name: g.cookie, Value: g.key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		g.next.ServeHTTP(w, r)
	case g.hasCookie(r):
		g.next.ServeHTTP(w, r)
	default:
		http.Error(w, "Open the address that \"kubectl device web\" has printed: the key in it is missing here, or is "+
			"of an earlier one.", http.StatusForbidden)
	}
}

// opens reports whether a key is right.
func (g *guard) opens(key string) bool {
	if equal(key, g.key) {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.once == "" || !equal(key, g.once) {
		return false
	}
	g.once = ""
	return true
}

func (g *guard) hasCookie(r *http.Request) bool {
	// What is not of this page's origin has no business here, even with the cookie: other ports of
	// this host are the same site to a browser.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	cookie, err := r.Cookie(g.cookie)
	return err == nil && equal(cookie.Value, g.key)
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// isLoopback reports whether a host, with or without a port, is this machine by its address or as
// localhost. The port may be another one, where the connection is forwarded.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
