// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiserver "k8s.io/apiserver/pkg/server"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// guarded puts the filters of a server around a handler. The header User says who makes a request.
func guarded(handler http.Handler) http.Handler {
	return guard(handler, apiserver.AuthenticationInfo{
		Authenticator: authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: r.Header.Get("User")}}, true, nil
		}),
	}, apiserver.AuthorizationInfo{
		Authorizer: authorizer.AuthorizerFunc(
			func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return authorizer.DecisionAllow, "", nil
			}),
	})
}

// send writes a request without its body to a connection.
func send(t *testing.T, connection net.Conn, who, path string, length int, headers ...string) {
	t.Helper()
	lines := append([]string{
		"POST " + path + " HTTP/1.1", "Host: x", "User: " + who, fmt.Sprintf("Content-Length: %d", length),
	}, headers...)
	if _, err := io.WriteString(connection, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

// The server answers others while any number of connections stall, in a request or in an answer.
func TestSlowConnectionsDoNotBlockOthers(t *testing.T) {
	placement := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			_, _ = w.Write(make([]byte, maxAnswer)) // more than the buffers of a connection have
		}
	})
	for name, test := range map[string]struct {
		length  int
		headers []string
		answer  string // the first line of it
	}{
		"while they send a request":    {2, []string{"Expect: 100-continue"}, "HTTP/1.1 100 Continue\r\n"},
		"while they receive an answer": {0, nil, "HTTP/1.1 200 OK\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(guarded(NewHandler(Options{
				Source: two, Self: me(self), Placement: placement,
			})))
			t.Cleanup(server.Close)
			for i := range 2 * maxConcurrent {
				connection, err := net.Dial("tcp", server.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { connection.Close() })
				send(t, connection, fmt.Sprint("slow-", i), schedulerapi.WhyPath, test.length, test.headers...)
				line, err := bufio.NewReaderSize(connection, 16).ReadString('\n')
				if err != nil || line != test.answer {
					t.Fatalf("connection %d: %q, %v; want %q", i, line, err, test.answer)
				}
			}
			url := server.URL + schedulerapi.NodesPath
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("User", "bob")
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				text, _ := io.ReadAll(response.Body)
				t.Errorf("bob gets status %d: %s", response.StatusCode, text)
			}
		})
	}
}

// pipes are the connections of a server without a network.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	connection, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return connection, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// connect serves a handler within the limits, and returns a connection to it.
func connect(t *testing.T, handler http.HandlerFunc) (*bounds, net.Conn) {
	t.Helper()
	b, listener := newBounds(), make(pipes)
	server := &http.Server{Handler: guarded(b.limit(handler))}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	connection, end := net.Pipe()
	listener <- end
	t.Cleanup(func() { _ = connection.Close() })
	return b, connection
}

func (b *bounds) requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

func TestStalledRequestTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, connection := connect(t, func(http.ResponseWriter, *http.Request) { t.Error("it is answered") })
		send(t, connection, "alice", "/", 2)
		if _, err := connection.Write([]byte("{")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if took := time.Since(began); response.StatusCode != http.StatusRequestTimeout || took != transferTimeout {
			t.Errorf("status %d after %v, want 408 after %v", response.StatusCode, took, transferTimeout)
		}
		synctest.Wait()
		if n := b.requests(); n != 0 {
			t.Errorf("%d requests are in flight", n)
		}
	})
}

func TestUnreadAnswerTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, connection := connect(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 1<<20)) // more than the server buffers
		})
		send(t, connection, "alice", "/", 0)
		synctest.Wait()
		if n := b.requests(); n != 1 {
			t.Errorf("%d requests are in flight before the time is over, want 1", n)
		}
		time.Sleep(transferTimeout)
		synctest.Wait()
		if n := b.requests(); n != 0 {
			t.Errorf("%d requests are in flight", n)
		}
		if _, err := connection.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection is not closed: %v", err)
		}
	})
}

// A connection serves several requests. A slow one takes no time from the next.
func TestAnswersASlowConnectionWithinItsTime(t *testing.T) {
	const long = transferTimeout - time.Second
	synctest.Test(t, func(t *testing.T) {
		_, connection := connect(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(long)
			if err := r.Context().Err(); err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(w, r.Body)
		})
		reader := bufio.NewReader(connection)
		for i := range 3 {
			send(t, connection, "alice", "/", 2)
			time.Sleep(long)
			if _, err := connection.Write([]byte("{}")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * long)
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK || string(text) != "{}" {
				t.Errorf("request %d: status %d, %q, %v", i, response.StatusCode, text, err)
			}
			time.Sleep(2 * transferTimeout)
		}
	})
}

func TestLimitsRequestsInFlight(t *testing.T) {
	b := newBounds()
	var leave func()
	for i := range maxInFlight {
		left, err := b.enter(fmt.Sprint("user-", i/maxOfUser))
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if leave == nil {
			leave = left
		}
	}
	for who, says := range map[string]string{"user-1": `user "user-1"`, "bob": "the scheduler has"} {
		if _, err := b.enter(who); err == nil || err.Status().Code != http.StatusTooManyRequests ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("one more of %s: %v, want %s", who, err, says)
		}
	}
	leave()
	if leave, err := b.enter("bob"); err != nil {
		t.Errorf("bob, when another request has ended: %v", err)
	} else {
		leave()
	}
	if _, err := b.enter("user-0"); err != nil {
		t.Errorf("who had ended one: %v", err)
	}
	if n, ok := b.inFlight["bob"]; ok {
		t.Errorf("bob still has an entry, with %d requests", n)
	}
}
