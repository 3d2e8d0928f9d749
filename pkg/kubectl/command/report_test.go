// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// unpacked is a report: the texts of its files by their names.
type unpacked map[string]string

// writeReport runs kubectl device report with these flags and returns what it has written.
func (f *fixture) writeReport(t *testing.T, flags string) (files unpacked, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	stdout, stderr, status := f.run(t.Context(), "report -o "+file+" "+flags)
	if status != 0 || stdout != file+"\n" {
		t.Fatalf("exit status %d, printed %q and %q", status, stdout, stderr)
	}
	return unpack(t, file), stderr
}

func unpack(t *testing.T, file string) unpacked {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	compressed, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	files := unpacked{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(header.Name, "kubedevice-report-20260504T110000Z/")
		if !ok || header.Mode != 0o600 || header.Typeflag != tar.TypeReg || len(files) == 0 && name != "index.txt" {
			t.Errorf("%d: unexpected %+v", len(files), header)
		}
		files[name] = string(text)
	}
}

func (u unpacked) has(t *testing.T, file string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(u[file], word) {
			t.Errorf("%s has no %q:\n%s", file, word, u[file])
		}
	}
}

func (u unpacked) lacks(t *testing.T, file string, words ...string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(u[file], word) {
			t.Errorf("%s has %q:\n%s", file, word, u[file])
		}
	}
}

// answer is what comes back through the API server's proxy.
type answer struct {
	text string
	err  error
}

func (a answer) DoRaw(context.Context) ([]byte, error) { return []byte(a.text), a.err }

func (a answer) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(a.text)), a.err
}

const (
	schedulerLog = `I0504 10:59:00.000000       1 server.go:1] "Starting Kubernetes Scheduler" ` +
		`version="v1.37.1+kubedevice-1"` + "\n"
	schedulerMetrics = "kubernetes_build_info{build_date=\"\",git_version=\"v1.37.1+kubedevice-2\"} 1\n"
)

// withControlPlane returns a fixture with what a report reads in addition to nodes and pods.
func withControlPlane(t *testing.T, objects ...apiruntime.Object) *fixture {
	t.Helper()
	scheduler := newPod("kube-system/kube-scheduler-a")
	scheduler.Spec.NodeName = "a"
	scheduler.Spec.Containers[0] = corev1.Container{Name: "kube-scheduler", Image: "debian:12-slim"}
	scheduler.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "kube-scheduler", ImageID: "sha256:1",
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2}},
	}}
	enrol := newPod("kube-system/kubecri-enrol-large-x")
	enrol.Spec.NodeName = "large"
	enrol.Spec.Containers[0] = corev1.Container{Name: "kubecri", Image: "busybox"}
	second := newPod("kubedevice-system/kubedevice-scheduler-x")
	second.Spec.NodeName = "a"
	second.Spec.Containers[0] = corev1.Container{Name: "kube-scheduler", Image: "localhost/kubedevice-scheduler"}
	holder := "a_1"
	objects = append(objects, scheduler, enrol,
		&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "other-lease"}},
		&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kubedevice-system", Name: "kubedevice-scheduler"},
		},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kubedevice-schedulers", Name: "host-10262",
			Annotations: map[string]string{"kubedevice.io/scheduler-api": `{"publicKey":"sha256:1"}`},
		}},
		second,
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "kubedevice-bindings"}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other-policy"}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "kubedevice-bindings"}},
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "kubedevice-scheduler-name"}},
		&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "kubedevice-scheduler-name"}},
		newEvent("of-a-device-pod", "Pod", "default/big", "default-scheduler", time.Minute),
		newEvent("of-a-pod-that-is-gone", "Pod", "default/gone", "kubecri", 2*time.Minute),
		newEvent("of-a-node", "Node", "/large", "kubelet", 3*time.Minute),
		newEvent("of-another-pod", "Pod", "default/plain", "kubelet", time.Minute),
		newEvent("of-long-ago", "Pod", "default/big", "default-scheduler", 61*time.Minute),
	)
	f := newFixture(objects...)
	f.client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.37.1"}
	f.client.PrependReactor("get", "pods/log",
		func(action clienttesting.Action) (bool, apiruntime.Object, error) {
			options := action.(clienttesting.GenericActionImpl).Value.(*corev1.PodLogOptions)
			text := "enrolled\n"
			if options.Container == "kube-scheduler" {
				text = schedulerLog
			}
			return true, &apiruntime.Unknown{Raw: []byte(text)}, nil
		})
	f.proxy(answer{text: schedulerMetrics})
	return f
}

// proxy makes an answer come back through the API server's proxy.
func (f *fixture) proxy(a answer) {
	f.client.PrependProxyReactor("*", func(clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		return true, a, nil
	})
}

// newEvent returns an event that was seen so long ago.
func newEvent(name, kind, about, writer string, age time.Duration) *corev1.Event {
	namespace, of, _ := strings.Cut(about, "/")
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: of},
		Source:         corev1.EventSource{Component: writer}, LastTimestamp: metav1.NewTime(now.Add(-age)),
	}
}

func TestAReportIsListedInItsIndex(t *testing.T) {
	const golden = "testdata/report/index.txt"
	f := withControlPlane(t, zoo(t)...)
	f.proxy(answer{err: errors.New("no such\nport")})
	files, stderr := f.writeReport(t, "")
	got := strings.ReplaceAll(files["index.txt"], clientVersion(), "v0")
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("go test ./pkg/kubectl/command -rewrite takes it over (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(stderr, "Warning: not in the report: metrics/kube-scheduler-a.txt: no such port; it needs") {
		t.Errorf("warns %q", stderr)
	}
	for name := range files {
		if name != "index.txt" {
			files.has(t, "index.txt", "\n  "+name+" ")
		}
	}
}

func TestAReportHasWhatSupportNeeds(t *testing.T) {
	f := withControlPlane(t, zoo(t)...)
	files, _ := f.writeReport(t, "")
	files.has(t, "versions.yaml", "apiServer: v1.37.1\n", "v1.37.1+kubedevice-1\n", "v1.37.1+kubedevice-2\n",
		"image: debian:12-slim\n", "imageID: sha256:1\n", "count: 5\n")
	files.has(t, "nodes.yaml", "name: large\n", "name: plain\n", "KubeDevice/DeviceInfo: '{", "KubeDevice/Holders: '[")
	files.has(t, "pods.yaml", "name: pair\n", "name: ended\n", "KubeDevice/DeviceInfo: '{", "reason: Unschedulable\n")
	files.lacks(t, "pods.yaml", "name: plain\n")
	files.has(t, "events.yaml", "of-a-device-pod", "of-a-pod-that-is-gone", "of-a-node")
	files.lacks(t, "events.yaml", "of-another-pod", "of-long-ago")
	files.has(t, "policies.yaml", "kind: ValidatingAdmissionPolicy\n", "kind: ValidatingAdmissionPolicyBinding\n",
		"kind: MutatingAdmissionPolicy\n", "kind: MutatingAdmissionPolicyBinding\n")
	files.lacks(t, "policies.yaml", "other-policy")
	files.has(t, "leases.yaml", "holderIdentity: a_1\n", "name: kubedevice-scheduler\n",
		`kubedevice.io/scheduler-api: '{"publicKey":"sha256:1"}'`)
	files.lacks(t, "leases.yaml", "other-lease")
	files.has(t, "logs/kube-scheduler-a.kube-scheduler.log", schedulerLog)
	files.has(t, "logs/kube-scheduler-a.kube-scheduler.previous.log", schedulerLog)
	files.has(t, "logs/kubecri-enrol-large-x.kubecri.log", "enrolled\n")
	files.has(t, "logs/kubedevice-scheduler-x.kube-scheduler.log", schedulerLog)
	files.has(t, "metrics/kubedevice-scheduler-x.txt", schedulerMetrics)
	files.has(t, "metrics/kube-scheduler-a.txt", schedulerMetrics)
	for file, line := range map[string]string{
		"nodes.txt": "nodes -o wide", "pods.txt": "pods -A -o wide", "top.txt": "top -o wide",
	} {
		want, warnings, _ := f.run(t.Context(), line)
		if diff := cmp.Diff(want+warnings, files[file]); diff != "" {
			t.Errorf("kubectl device %s prints something else (-want +got):\n%s", line, diff)
		}
	}
}

func TestAReportAboutANodeHasItsPodsAndThoseThatWait(t *testing.T) {
	files, stderr := withControlPlane(t, zoo(t)...).writeReport(t, "--node reporting --node lost,lost --no-logs")
	files.has(t, "nodes.yaml", "name: reporting\n")
	files.lacks(t, "nodes.yaml", "name: large\n")
	files.has(t, "pods.yaml", "name: reported\n", "name: big\n")
	files.lacks(t, "pods.yaml", "name: pair\n")
	files.lacks(t, "events.yaml", "of-a-node")
	files.has(t, "nodes.txt", "reporting ")
	files.lacks(t, "nodes.txt", "large ")
	if n := strings.Count(stderr, `nodes "lost" not found`); n != 1 {
		t.Errorf("a node that is not there is named %d times: %s", n, stderr)
	}
	files.has(t, "index.txt", "Nodes: lost, reporting, and", "node lost: ", "logs: --no-logs leaves them out",
		"kubecri: no pod")
	for name := range files {
		if strings.HasPrefix(name, "logs/") {
			t.Errorf("it has %s", name)
		}
	}
}

func TestAReportNamesForbiddenPartsAndHasAllOthers(t *testing.T) {
	for resource, lacking := range map[string][]string{
		"nodes":                       {"nodes.yaml", "nodes.txt", "top.txt", "events about nodes"},
		"events":                      {"events.yaml"},
		"leases":                      {"leases.yaml"},
		"validatingadmissionpolicies": {"validatingadmissionpolicies"},
		"pods/log": {
			"logs/kube-scheduler-a.kube-scheduler.log", "logs/kube-scheduler-a.kube-scheduler.previous.log",
			"logs/kubecri-enrol-large-x.kubecri.log", "logs/kubedevice-scheduler-x.kube-scheduler.log",
		},
		"pods": {
			"pods.yaml", "nodes.txt", "pods.txt", "top.txt", "logs and metrics",
			"logs/kube-scheduler-a.kube-scheduler.log", "logs/kube-scheduler-a.kube-scheduler.previous.log",
			"logs/kubecri-enrol-large-x.kubecri.log", "metrics/kube-scheduler-a.txt",
			"logs/kubedevice-scheduler-x.kube-scheduler.log", "metrics/kubedevice-scheduler-x.txt",
		},
		"*": nil, // all of them
	} {
		t.Run(resource, func(t *testing.T) {
			whole, _ := withControlPlane(t, zoo(t)...).writeReport(t, "")
			f := withControlPlane(t, zoo(t)...)
			group, name := schema.GroupResource{Resource: resource}, resource
			f.client.PrependReactor("*", name, func(clienttesting.Action) (bool, apiruntime.Object, error) {
				return true, nil, apierrors.NewForbidden(group, "", errors.New("no"))
			})
			files, stderr := f.writeReport(t, "")
			if !strings.Contains(stderr, "kubectl auth can-i") {
				t.Errorf("does not say which right is missing: %s", stderr)
			}
			if resource == "*" {
				got := slices.Sorted(maps.Keys(files))
				if diff := cmp.Diff([]string{"index.txt", "policies.yaml", "versions.yaml"}, got); diff != "" {
					t.Error(diff)
				}
				return
			}
			for name := range whole {
				if _, ok := files[name]; ok == slices.Contains(lacking, name) {
					t.Errorf("has %s: %v", name, ok)
				}
			}
			if resource != "pods" {
				for _, name := range lacking {
					files.has(t, "index.txt", "\n  "+name+": ")
				}
			}
		})
	}
}

func TestAReportThatIsInterruptedLeavesNoFile(t *testing.T) {
	for _, at := range []string{"nodes", "pods", "events", "leases"} {
		t.Run(at, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			ctx, cancel := context.WithCancel(t.Context())
			f := withControlPlane(t, zoo(t)...)
			f.client.PrependReactor("list", at, func(clienttesting.Action) (bool, apiruntime.Object, error) {
				cancel()
				return false, nil, nil
			})
			directory := t.TempDir()
			_, stderr, status := f.run(ctx, "report -o "+filepath.Join(directory, "report.tar.gz"))
			if status != 1 || stderr != "" {
				t.Errorf("exit status %d, and %q", status, stderr)
			}
			if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
				t.Errorf("it leaves %v, %v", left, err)
			}
		})
	}
}

func TestAReportThatCannotBeMadeLeavesWhatIsThere(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "report.tar.gz")
	if err := os.WriteFile(file, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := withControlPlane(t)
	f.client.PrependReactor("get", "version", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		return true, nil, errors.New("no server answers")
	})
	for flags, want := range map[string]string{
		"-o " + file: "no server answers", "-o " + directory: "something that is not a file",
		"-o " + filepath.Join(directory, "none", "x"): "none", "--since 0s": "--since must be", "a": "unknown command",
	} {
		if _, stderr, status := f.run(t.Context(), "report "+flags); status != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit status %d, and %q", flags, status, stderr)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "before" {
		t.Errorf("the file is %q, %v", text, err)
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) != 1 {
		t.Errorf("there are %v, %v", left, err)
	}
}

func TestAReportIsForItsUserAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	const file = "kubedevice-report-20260504T110000Z.tar.gz"
	if err := os.WriteFile(file, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	stdout, _, status := withControlPlane(t, zoo(t)...).run(t.Context(), "report")
	info, err := os.Stat(file)
	if status != 0 || stdout != file+"\n" || err != nil {
		t.Fatalf("exit status %d, printed %q: %v", status, stdout, err)
	}
	if runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("its mode is %v", info.Mode())
	}
	unpack(t, file)
}
