// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
	"github.com/kubedevice/kubedevice/pkg/statetest"
)

const (
	kubecriEndpoint = "unix:///run/kubedevice/kubecri.sock"
	runtimeEndpoint = "unix:///var/run/containerd/containerd.sock"
	nodeName        = "node-1"
	journalPath     = "/var/lib/kubedevice-enrolment"
)

// kubeadm are the files of a node that kubeadm set up.
var kubeadm = map[string]string{
	"/var/lib/kubelet/config.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\n# by hand\n" +
		"containerRuntimeEndpoint: " + runtimeEndpoint + "\nkind: KubeletConfiguration\n",
	"/var/lib/kubelet/instance-config.yaml": "containerRuntimeEndpoint: \"" + runtimeEndpoint + "\"\n",
	"/var/lib/kubelet/kubeadm-flags.env":    "KUBELET_KUBEADM_ARGS=\"--node-ip=10.0.0.1\"\n",
}

// dropIn is a file of the kubelet's unit.
const dropIn = "/etc/systemd/system/kubelet.service.d/20-runtime.conf"

// machine is a node with systemd, a kubelet and an API server, as far as an enrolment sees them.
type machine struct {
	t      *testing.T
	root   string
	api    *fake.Clientset
	active map[string]bool // units that run
	// flags are the kubelet's.
	flags []string
	// dead makes each kubelet that is started with kubecri's endpoint never report.
	dead bool
	// fails has pods that the kubelet fails when it starts.
	fails []string
	// unit are properties of the kubelet's unit beyond the usual ones.
	unit string
	// loaded is dropIn as systemd has read it.
	loaded   string
	pid      string // of the kubelet
	restarts int
	progress lines
	evicted  []string

	// granted are the pods that hold devices which the kubelet does not know of.
	granted []string
	// keepsGrants has kubecri write its checkpoint when it is started.
	keepsGrants bool
	// version is the container runtime's.
	version   string
	validator nri.Settings
	// free is the space on each file system, in bytes.
	free uint64
	// clockSkew is how far the API server's clock is ahead.
	clockSkew time.Duration
	// stopped counts how often kubecri was stopped.
	stopped int

	// The errors of calls that fail.
	connectErr, runtimeErr, kubecriErr, cdiErr, nriErr, validatorErr, pluginErr error

	// crashAt is the change before which the program ends; the first is 0. Negative means none.
	crashAt, changes int
	options          Options

	// transitions are those that the node may make; states are those that it was in, in order.
	transitions *statetest.Transitions
	states      []state
}

// crash is the panic of a program that ends.
type crash struct{}

func newMachine(t *testing.T, files map[string]string) *machine {
	t.Helper()
	m := &machine{
		t: t, root: t.TempDir(), active: map[string]bool{"kubelet.service": true}, crashAt: -1, pid: "100",
		version: "containerd v2.1.0", free: 1 << 40,
		validator: nri.Settings{Enabled: true, File: "/etc/containerd/config.toml"},
		flags: []string{
			"/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml", "--kubeconfig", "/etc/kubernetes/kubelet.conf",
			"--hostname-override=" + nodeName,
		},
		unit: "EnvironmentFiles=/var/lib/kubelet/kubeadm-flags.env (ignore_errors=yes)\n" +
			"EnvironmentFiles=/etc/default/kubelet (ignore_errors=yes)\n",
	}
	for _, directory := range []string{"/run", "/etc/systemd/system", "/var/lib/kubelet", "/proc/100", "/plugins"} {
		if err := os.MkdirAll(filepath.Join(m.root, directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range files {
		m.write(path, content)
	}
	m.write("/run/nri.sock", "")
	if m.loaded = files[dropIn]; m.loaded != "" {
		m.unit += "DropInPaths=" + dropIn + "\n"
	}
	m.api = fake.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready(corev1.ConditionTrue)}},
	})
	m.api.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if verb := action.GetVerb(); verb != "get" && verb != "list" {
			m.change(verb)
		}
		return false, nil, nil
	})
	m.api.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		name := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		m.evicted = append(m.evicted, name)
		return true, nil, m.api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", name)
	})
	m.options = Options{
		Host:     Host{Root: m.root, Machine: m, changes: m},
		Endpoint: kubecriEndpoint, Program: "/usr/local/bin/kubecri", PluginDir: "/plugins",
		StateDir: "/var/lib/kubedevice", Journal: journalPath, ConfigFile: "/etc/kubedevice/kubecri.yaml",
		SystemdDir: "/etc/systemd/system",
		Version:    "KubeDevice v1", KubeletUnit: "kubelet.service", CheckpointPath: "/var/lib/kubelet/checkpoint",
		Kubecri: m, APIServers: m, Runtimes: m,
		SchedulersReplaced: true,
		NRISocket:          "/run/nri.sock",
		MetricsAddress:     "127.0.0.1:10261",
		Progress:           &m.progress,
	}
	m.transitions, m.states = statetest.Read(t, "state.go"), []state{absent}
	t.Cleanup(m.observe)
	return m
}

// lines are the lines that were written, each by one call of Write.
type lines []string

func (l *lines) Write(line []byte) (int, error) {
	*l = append(*l, strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

func ready(status corev1.ConditionStatus) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	}
}

func (m *machine) write(path, content string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(path string) string {
	m.t.Helper()
	content, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(content)
}

// before is called before each change of a file.
func (m *machine) before(path string) { m.change(path) }

// change is called before each change, and ends the program if it is to end there.
func (m *machine) change(string) {
	m.checkEndpoint()
	m.observe()
	if m.changes++; m.changes-1 == m.crashAt {
		panic(crash{})
	}
}

// checkEndpoint checks what must hold at each moment: a kubelet that is started now finds a
// runtime.
func (m *machine) checkEndpoint() {
	m.t.Helper()
	if m.endpoint() == kubecriEndpoint && !m.active["kubecri.service"] {
		m.t.Error("the kubelet is to call kubecri, which does not run")
	}
}

// endpoint is what a kubelet that is started now calls.
func (m *machine) endpoint() string {
	content, _ := os.ReadFile(filepath.Join(m.root, "/var/lib/kubelet/config.yaml"))
	endpoint := defaultUpstream
	for line := range strings.Lines(string(content)) {
		if value, found := strings.CutPrefix(line, "containerRuntimeEndpoint: "); found {
			endpoint = strings.TrimSpace(value)
		}
	}
	content, _ = os.ReadFile(filepath.Join(m.root, "/var/lib/kubelet/kubeadm-flags.env"))
	for _, flags := range []string{string(content), m.loaded} {
		if _, value, found := strings.Cut(flags, "--container-runtime-endpoint="); found {
			endpoint = strings.Trim(strings.Fields(value)[0], `"`)
		}
	}
	return endpoint
}

func (m *machine) Version(_ context.Context, endpoint string) (string, error) {
	if m.runtimeErr != nil {
		return "", m.runtimeErr
	}
	if endpoint == kubecriEndpoint && m.kubecriErr != nil {
		return "", m.kubecriErr
	}
	if endpoint == kubecriEndpoint && !m.active["kubecri.service"] {
		return "", errors.New("connection refused")
	}
	return m.version, nil
}

func (m *machine) CheckCDI(context.Context, string) error { return m.cdiErr }

func (m *machine) CheckNRI(context.Context, string, string) (string, error) {
	return "containerd v2.4.2", m.nriErr
}

func (m *machine) Validator(context.Context, string) (nri.Settings, error) {
	return m.validator, m.validatorErr
}

func (m *machine) Connect(string) (kubernetes.Interface, error) { return m.api, m.connectErr }

func (m *machine) Time(context.Context, string) (time.Time, error) {
	return time.Now().Add(m.clockSkew), nil
}

func (m *machine) Unit(name string) ([]byte, error) { return []byte("unit " + name), nil }

func (m *machine) Configuration(kubelet Kubelet) ([]byte, error) {
	return []byte("criUpstream: " + kubelet.Endpoint + "\n"), nil
}

func (m *machine) CheckPlugin(context.Context, string) error { return m.pluginErr }

func (m *machine) Granted(kubeletstate.State) ([]string, error) { return m.granted, nil }

func (m *machine) Stop(context.Context) error {
	m.stopped++
	return nil
}

func (m *machine) Withdraw(context.Context, kubernetes.Interface, string) error { return nil }

func (m *machine) Free(string) (uint64, error) { return m.free, nil }

// Registered is kubecri's health: a kubecri that runs is registered, unless it is not to be.
func (m *machine) Registered(context.Context) error {
	if !m.active["kubecri.service"] || m.dead {
		return errors.New("[-]nri: kubecri is not registered")
	}
	return nil
}

// Run is systemctl, and kubecri as far as its version.
func (m *machine) Run(_ context.Context, program string, args ...string) (string, error) {
	if program == "/usr/local/bin/kubecri" {
		return "KubeDevice v1\n", nil
	}
	if args[0] == "show" {
		return m.show(args[1]), nil
	}
	m.change(args[0])
	switch args[0] {
	case "daemon-reload":
		content, _ := os.ReadFile(filepath.Join(m.root, dropIn))
		m.loaded = string(content)
	case "enable", "disable":
		for _, unit := range args[2:] {
			if _, err := os.Stat(filepath.Join(m.root, "/etc/systemd/system", unit)); err != nil {
				return "", fmt.Errorf("unit %s does not exist", unit)
			}
			m.active[unit] = args[0] == "enable"
		}
		if args[0] == "enable" && m.keepsGrants {
			m.write("/var/lib/kubedevice/grants", "kubecri's")
		}
	case "restart":
		m.restarts++
		return "", m.startKubelet()
	default:
		return "", fmt.Errorf("systemctl %s?", args[0])
	}
	return "", nil
}

func (m *machine) show(unit string) string {
	switch {
	case unit == "kubelet.service":
		m.write("/proc/100/cmdline", strings.Join(m.flags, "\x00")+"\x00")
		return "LoadState=loaded\nActiveState=active\nMainPID=" + m.pid +
			"\nFragmentPath=/usr/lib/systemd/system/kubelet.service\n" + m.unit
	case m.options.Host.exists(filepath.Join("/etc/systemd/system", unit)):
		state := "inactive"
		if m.active[unit] {
			state = "active"
		}
		return "LoadState=loaded\nActiveState=" + state + "\nMainPID=0\n"
	}
	return "LoadState=not-found\nActiveState=inactive\nMainPID=0\n"
}

// startKubelet is a kubelet's start: it reports unless it is not to.
func (m *machine) startKubelet() error {
	for i, flag := range m.flags {
		if strings.HasPrefix(flag, "--container-runtime-endpoint=") {
			m.flags[i] = "--container-runtime-endpoint=" + m.endpoint()
		}
	}
	if m.dead && m.endpoint() == kubecriEndpoint {
		return nil
	}
	ctx := context.Background()
	m.setReady(corev1.ConditionTrue)
	for _, name := range m.fails {
		pod, err := m.api.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "UnexpectedAdmissionError"
		err = m.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "default")
		if err != nil {
			return err
		}
	}
	return nil
}

// addPod adds a pod that runs on the node, and requests one of each resource.
func (m *machine) addPod(name string, resources ...corev1.ResourceName) {
	m.t.Helper()
	limits := corev1.ResourceList{}
	for _, name := range resources {
		limits[name] = resource.MustParse("1")
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Limits: limits},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if err := m.api.Tracker().Add(pod); err != nil {
		m.t.Fatal(err)
	}
}

// changePod changes a pod.
func (m *machine) changePod(name string, change func(*corev1.Pod)) {
	m.t.Helper()
	pod, err := m.api.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	change(pod)
	if err := m.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "default"); err != nil {
		m.t.Fatal(err)
	}
}

// setRunning says whether container main of a pod runs.
func (m *machine) setRunning(name string, runs bool) {
	m.t.Helper()
	m.changePod(name, func(pod *corev1.Pod) {
		status := corev1.ContainerStatus{Name: "main"}
		if runs {
			status.State.Running = &corev1.ContainerStateRunning{}
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	})
}

// setKubelet sets the version that the kubelet reports.
func (m *machine) setKubelet(version string) {
	m.t.Helper()
	m.changeNode(func(node *corev1.Node) { node.Status.NodeInfo.KubeletVersion = version })
}

// setReady makes the kubelet report now.
func (m *machine) setReady(status corev1.ConditionStatus) {
	m.t.Helper()
	m.changeNode(func(node *corev1.Node) { node.Status.Conditions = []corev1.NodeCondition{ready(status)} })
}

// snapshot is everything that an enrolment may change.
func (m *machine) snapshot() string {
	m.t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(m.root, func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, m.root)
		if err != nil || strings.HasPrefix(name, "/run") || strings.HasPrefix(name, "/proc") {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := ""
		if !entry.IsDir() {
			content = m.read(name)
		}
		fmt.Fprintf(&all, "%s %v %q\n", name, info.Mode(), content)
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	node, err := m.api.CoreV1().Nodes().Get(m.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, unit := range slices.Sorted(maps.Keys(m.active)) {
		if m.active[unit] {
			fmt.Fprintln(&all, unit, "runs")
		}
	}
	fmt.Fprintln(&all, node.Labels, node.Spec.Unschedulable)
	return all.String()
}

// enrolment returns the program that is started now.
func (m *machine) enrolment() *Enrolment { return New(m.options) }

// until runs the program up to a crash, and reports whether there was one.
func (m *machine) until(crashAt int, run func(*Enrolment) *Report) (report *Report, crashed bool) {
	m.t.Helper()
	m.crashAt, m.changes = crashAt, 0
	defer func() {
		m.crashAt = -1
		if reason := recover(); reason != nil {
			if _, crashed = reason.(crash); !crashed {
				panic(reason)
			}
		}
	}()
	return run(m.enrolment()), false
}

func (m *machine) enrol() *Report {
	m.t.Helper()
	return m.enrolment().Enrol(m.t.Context(), false)
}

func (m *machine) leave() *Report {
	m.t.Helper()
	return m.enrolment().Leave(m.t.Context(), false, false)
}

// expect fails unless the report has the outcome.
func (m *machine) expect(report *Report, outcome Outcome) {
	m.t.Helper()
	if report.Outcome != outcome {
		m.t.Errorf("%s, want %s: %s\n%s", report.Outcome, outcome, report.Reason, strings.Join(m.progress, "\n"))
	}
}
