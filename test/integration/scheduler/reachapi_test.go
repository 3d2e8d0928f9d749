// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/cri-streaming/pkg/streaming/portforward"

	kubectl "github.com/kubedevice/kubedevice/pkg/kubectl/scheduler"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/pki"
)

// options are those of kubectl for a user.
func (c *cluster) options(user string) kubectl.Options {
	c.Helper()
	client, err := server.Client(user)
	if err != nil {
		c.Fatal(err)
	}
	return kubectl.Options{Config: client.Config, Leases: client.CoordinationV1(), Now: time.Now}
}

// awaitConnection connects as soon as a scheduler can be found that is the one that is wanted.
func (c *cluster) awaitConnection(options kubectl.Options, is func(*kubectl.Client) bool) *kubectl.Client {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	var wanted *kubectl.Client
	if err := await.Success(ctx, "a connection", func(ctx context.Context) error {
		client, err := kubectl.Connect(ctx, options)
		if err != nil {
			return err
		}
		if !is(client) {
			client.Close()
			return fmt.Errorf("%+v answers", client.Server)
		}
		wanted = client
		return nil
	}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(wanted.Close)
	return wanted
}

// Of two schedulers one leads. Both answer, each says which it is; kubectl prefers the one that
// leads, and finds the other one when it is gone.
func TestLeaderAndStandbyAnswerAndSayWhichTheyAre(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	c.viewer("viewer")
	ports := [2]int{freePort(t), freePort(t)}
	var pair [2]*process
	for i, port := range ports {
		pair[i] = startSchedulerWith(t, serving(port, election...))
	}
	leads := func(client *kubectl.Client) bool { return client.Server.Leads }
	leader := c.awaitConnection(c.options("viewer"), leads)

	var standby int
	for i, port := range ports {
		r, path := newReader(t, port, "viewer"), schedulerapi.ServerPath
		ours := schedulerapi.Server{Instance: schedulerapi.Instance{Leads: pair[i].leads()}}
		ignored := cmpopts.IgnoreFields(schedulerapi.Server{}, "Version", "CompleteSince", "Name")
		awaitGet(r, path, ours, ignored)
		if !pair[i].leads() {
			standby = i
		} else if leader.Instance.Port != port {
			t.Errorf("kubectl finds %+v, and port %d leads", leader.Instance, port)
		}
		var nodes schedulerapi.NodeList
		var text string
		waiting, stop := context.WithTimeout(t.Context(), timeout)
		err := await.Until(waiting, "a scheduler to know the whole cluster", func(context.Context) (bool, error) {
			var status int
			status, text = r.get(schedulerapi.NodesPath)
			return status != http.StatusServiceUnavailable, nil
		})
		if stop(); err != nil {
			t.Error(err)
		}
		if err := json.Unmarshal([]byte(text), &nodes); err != nil ||
			nodes.Scheduler.Leads != pair[i].leads() || len(nodes.Items) != 1 || len(nodes.Items[0].Devices) != 2 {
			t.Errorf("port %d: %v: %+v", port, err, nodes)
		}
	}

	pair[1-standby].kill()
	next := c.awaitConnection(c.options("viewer"), leads)
	if next.Instance.Port != ports[standby] {
		t.Errorf("kubectl finds %+v after the leader is gone", next.Instance)
	}
}

func TestASchedulerThatEndsIsNoLongerPublished(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	p := startSchedulerWith(t, serving(freePort(t)))
	c.awaitConnection(c.options("viewer"), func(*kubectl.Client) bool { return true })
	p.terminate()
	if found, err := kubectl.Find(t.Context(), c.CoordinationV1(), time.Now()); err != nil || len(found) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// A scheduler's certificate is replaced by one with another key, while it runs.
func TestAnotherCertificateIsPublished(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	dir := t.TempDir()
	replace := func() {
		authority, err := pki.NewAuthority("someone")
		if err != nil {
			t.Fatal(err)
		}
		pair, err := authority.Server([]string{"scheduler"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{"tls.crt": pair.Public, "tls.key": pair.Private} {
			if err := os.WriteFile(filepath.Join(dir, name+".new"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace()
	startSchedulerWith(t, serving(freePort(t), "--tls-cert-file="+filepath.Join(dir, "tls.crt"),
		"--tls-private-key-file="+filepath.Join(dir, "tls.key")))
	before := c.awaitConnection(c.options("viewer"), func(*kubectl.Client) bool { return true })
	replace()
	c.awaitConnection(c.options("viewer"), func(client *kubectl.Client) bool {
		return client.Instance.PublicKey != before.Instance.PublicKey
	})
}

func TestWithoutTheRoleTheSchedulerIsNeitherFoundNorRead(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	startSchedulerWith(t, serving(freePort(t)))
	c.awaitConnection(c.options("viewer"), func(*kubectl.Client) bool { return true })

	stranger := c.options("stranger")
	if _, err := kubectl.Connect(t.Context(), stranger); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "kubectl auth can-i list leases.coordination.k8s.io -n kubedevice-schedulers") {
		t.Errorf("a stranger who looks for it: %v", err)
	}
	stranger.Leases = c.CoordinationV1() // somebody has given away where it is
	if _, err := kubectl.Connect(t.Context(), stranger); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "kubedevice-devices-viewer") {
		t.Errorf("a stranger who has found it: %v", err)
	}
	writer, err := server.Client("viewer")
	if err != nil {
		t.Fatal(err)
	}
	leases := writer.CoordinationV1().Leases(schedulerapi.Namespace)
	list, err := leases.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if _, err := leases.Update(t.Context(), &list.Items[0], metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a viewer publishes another address: %v", err)
	}
}

// Somebody else answers where the scheduler should: a server with another certificate, which
// requests that of the client. It learns nothing about the user, who has a token and a certificate.
func TestAnImpostorGetsNoCredentials(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	startSchedulerWith(t, serving(freePort(t)))
	options := c.options("viewer")
	c.awaitConnection(options, func(*kubectl.Client) bool { return true })

	for name, version := range map[string]uint16{"TLS 1.3": tls.VersionTLS13, "TLS 1.2": tls.VersionTLS12} {
		var connections, requests, certificates atomic.Int32
		impostor := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			requests.Add(1)
		}))
		impostor.TLS = &tls.Config{
			MaxVersion: version, ClientAuth: tls.RequireAnyClientCert,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { connections.Add(1); return nil, nil },
			VerifyConnection: func(state tls.ConnectionState) error {
				certificates.Add(int32(len(state.PeerCertificates)))
				return nil
			},
		}
		impostor.Config.ErrorLog = log.New(io.Discard, "", 0)
		impostor.StartTLS()
		options.Config = rest.CopyConfig(options.Config)
		options.Config.BearerToken = "secret"
		options.URL = impostor.URL
		client, err := kubectl.Connect(t.Context(), options)
		if err == nil {
			client.Close()
			t.Errorf("%s: kubectl believes an impostor", name)
		} else if version == tls.VersionTLS13 && !strings.Contains(err.Error(), "no credentials were sent") {
			t.Errorf("%s: %v", name, err)
		}
		impostor.Close() // and so no handshake is under way
		if connections.Load() == 0 || requests.Load() > 0 || certificates.Load() > 0 {
			t.Errorf("%s: of %d connections, the impostor got %d requests and %d certificates", name,
				connections.Load(), requests.Load(), certificates.Load())
		}
	}
}

// localPorts is what a kubelet forwards to, for a pod that shares the machine's network.
type localPorts struct{}

func (localPorts) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, stream) }() // until either end closes
	_, err = io.Copy(stream, conn)
	return err
}

// schedulerPod creates a node of which nothing works but the kubelet's port-forward, and the pod on
// it in which kubeadm runs the scheduler of this machine.
func (c *cluster) schedulerPod() *corev1.Pod {
	c.Helper()
	ctx := c.Context()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, localPorts{}, "", "", &portforward.V4Options{}, time.Minute, time.Minute,
			portforward.SupportedProtocols)
	}))
	c.Cleanup(kubelet.Close)
	node, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp1"}},
		metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubelet.Listener.Addr().(*net.TCPAddr).Port)
	if _, err := c.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		c.Fatal(err)
	}
	pod := kube.NewPod("kube-scheduler-"+strings.ToLower(host), "busybox")
	pod.Namespace, pod.Spec.NodeName = metav1.NamespaceSystem, node.Name
	pod = c.create(pod)
	c.Cleanup(func() {
		if err := c.CoreV1().Pods(pod.Namespace).Delete(context.Background(), pod.Name, atOnce); err != nil {
			c.Error(err)
		}
	})
	return pod
}

// A scheduler that runs in a pod is reached through a port-forward, by the API server and the
// kubelet of its node, although it listens on 127.0.0.1 there.
func TestASchedulerInAPodIsReachedThroughAPortForward(t *testing.T) {
	c := newCluster(t)
	pod := c.schedulerPod()
	port := freePort(t)
	scheduler := startSchedulerWith(t, serving(port))
	options := kubectl.Options{Config: c.Config, Leases: c.CoordinationV1(), Now: time.Now}
	client := c.awaitConnection(options, func(client *kubectl.Client) bool { return client.Instance.Pod == pod.Name })
	var nodes schedulerapi.NodeList
	if err := client.Query(t.Context(), http.MethodGet, schedulerapi.NodesPath, nil, &nodes); err != nil ||
		len(nodes.Items) != 1 || nodes.Items[0].Name != "cp1" {
		t.Errorf("%v: %+v", err, nodes)
	}

	// Somebody else listens there when the scheduler is gone, and its lease still counts.
	scheduler.kill()
	var requests atomic.Int32
	impostor := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
	}))
	impostor.Config.ErrorLog = log.New(io.Discard, "", 0)
	impostor.Listener.Close()
	var err error
	if impostor.Listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
		t.Fatal(err)
	}
	impostor.StartTLS()
	defer impostor.Close()
	if client, err := kubectl.Connect(t.Context(), options); err == nil {
		client.Close()
		t.Error("kubectl believes an impostor in the pod")
	} else if !strings.Contains(err.Error(), "no credentials were sent") || requests.Load() > 0 {
		t.Errorf("%d requests: %v", requests.Load(), err)
	}

	// No server listens.
	impostor.Close()
	for tries := 0; ; tries++ { // the stream that has the reason may be cut off before it is read
		client, err := kubectl.Connect(t.Context(), options)
		if err == nil {
			client.Close()
			t.Error("the connection succeeds without a server")
			break
		}
		if strings.Contains(err.Error(), "connection refused") {
			break
		}
		if tries == 10 {
			t.Errorf("the error does not say that the connection is refused: %v", err)
			break
		}
	}

	viewer := c.options("viewer") // who may read, and may not forward ports
	viewer.Leases = options.Leases
	right := "kubectl auth can-i create pods/" + pod.Name + " --subresource=portforward -n kube-system"
	if _, err := kubectl.Connect(t.Context(), viewer); err == nil || !strings.Contains(err.Error(), right) {
		t.Errorf("without the right to forward ports: %v", err)
	}
	if err := c.CoordinationV1().Leases(schedulerapi.Namespace).DeleteCollection(t.Context(), atOnce,
		metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// The document that is served is that of the repository.
// With the optional policy, a right to write Leases everywhere is not one to publish a key.
func TestOnlyTheSchedulerPublishesAKey(t *testing.T) {
	c := newCluster(t)
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	c.readOptional("kubedevice-scheduler-addresses", &policy, &binding)
	api := c.AdmissionregistrationV1()
	if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(), &policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(t.Context(), &binding,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		if err := errors.Join(api.ValidatingAdmissionPolicyBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}),
			api.ValidatingAdmissionPolicies().Delete(ctx, policy.Name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	write := func(namespace string) error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "forged-"}}
		created, err := c.CoordinationV1().Leases(namespace).Create(t.Context(), lease, metav1.CreateOptions{})
		if err == nil {
			err = c.CoordinationV1().Leases(namespace).Delete(t.Context(), created.Name, metav1.DeleteOptions{})
		}
		return err
	}
	c.until("the policy that no administrator writes a lease", func(context.Context) (bool, error) {
		err := write(schedulerapi.Namespace)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "only the device scheduler"), nil
	})
	if err := write(metav1.NamespaceDefault); err != nil {
		t.Errorf("elsewhere: %v", err)
	}
	port := freePort(t)
	startSchedulerWith(t, serving(port))
	c.awaitConnection(kubectl.Options{Config: c.Config, Leases: c.CoordinationV1(), Now: time.Now},
		func(*kubectl.Client) bool { return true })
}

func TestTheAPIDescribesItself(t *testing.T) {
	c := newCluster(t)
	c.viewer("viewer")
	startSchedulerWith(t, serving(freePort(t)))
	client := c.awaitConnection(c.options("viewer"), func(*kubectl.Client) bool { return true })
	var text []byte
	if err := client.Query(t.Context(), http.MethodGet, schedulerapi.OpenAPIPath, nil, &text); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(text, []byte(schedulerapi.OpenAPI())) {
		t.Errorf("got %s", text)
	}
}
