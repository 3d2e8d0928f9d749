// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/observe"
)

const (
	system = "kubedevice-system" // the release's namespace
	chosen = "kubedevice.io/devices"
	// kubeconfig is a copy of the kubelet's, at one path on all nodes.
	kubeconfig = "/var/lib/kubelet/kubeconfig"
)

// story is the cluster with what the test knows of it.
type story struct {
	*testing.T
	ctx       context.Context
	namespace string
	bystander *corev1.Pod
	kubelets  map[string]int // process IDs by node
	before    *state
}

// begin has a pod run that must not notice anything, and takes down how the cluster is.
func begin(t *testing.T) *story {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	s := &story{T: t, ctx: ctx, kubelets: map[string]int{}}
	s.awaitGoneNamespaces()
	s.loadImages()
	for _, node := range shared.Nodes {
		content, err := os.ReadFile(filepath.Join(options.Dir, "config", node.Name, "kubelet.kubeconfig"))
		s.must(err)
		s.must(os.WriteFile(filepath.Join(node.Var(), "lib", "kubelet", "kubeconfig"), content, 0o600))
	}
	s.kubectl("create", "namespace", system)
	t.Cleanup(func() {
		_, err := shared.Kubectl(context.WithoutCancel(ctx), "delete", "namespace", "--ignore-not-found", system)
		if err != nil {
			t.Error(err)
		}
	})
	s.must(shared.Client.AwaitServiceAccount(ctx, system))
	s.namespace = clustertest.Namespace(t, shared.Client)
	s.bystander = clustertest.RunPod(ctx, t, shared.Client, clustertest.IdlePod(s.namespace, "bystander", nil))
	for _, node := range shared.Nodes {
		s.kubelets[node.Name] = node.Kubelet.PID()
	}
	s.before = s.inspect()
	return s
}

// beginWithoutNamespace is begin without making the release's namespace: the test installs into its
// own.
func beginWithoutNamespace(t *testing.T) *story {
	t.Helper()
	s := begin(t)
	s.kubectl("delete", "namespace", system)
	s.before = s.inspect()
	return s
}

// awaitGoneNamespaces waits until the namespaces of the story before are gone.
func (s *story) awaitGoneNamespaces() {
	s.Helper()
	clustertest.Await(s.ctx, s, "namespaces to be gone", func() bool {
		list, err := shared.Client.CoreV1().Namespaces().List(s.ctx, metav1.ListOptions{})
		s.must(err)
		if !slices.ContainsFunc(list.Items, func(namespace corev1.Namespace) bool {
			return namespace.DeletionTimestamp != nil
		}) {
			return true
		}
		return false
	})
}

// loadImages gives all nodes the images, as docs/deploy/images.md says.
func (s *story) loadImages() {
	s.Helper()
	for _, layout := range layouts() {
		archive := filepath.Join(dir, filepath.Base(layout)+".tar")
		if _, err := os.Stat(archive); err == nil {
			continue
		}
		out, err := exec.CommandContext(s.ctx, "tar", "-C", layout, "-cf", archive, ".").CombinedOutput()
		if err != nil {
			s.Fatalf("%v: %s", err, out)
		}
		for _, node := range shared.Nodes {
			s.must(node.ImportImages(s.ctx, archive))
		}
	}
}

func (s *story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *story) kubectl(arguments ...string) string {
	s.Helper()
	printed, err := shared.Kubectl(s.ctx, arguments...)
	s.must(err)
	return printed
}

// helmCommand is Helm, as an administrator runs it.
func (s *story) helmCommand(arguments ...string) *exec.Cmd {
	command := exec.CommandContext(s.ctx, helm(), append([]string{
		"--kubeconfig=" + shared.Kubeconfig(), "--namespace=" + system,
	}, arguments...)...)
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)
	return command
}

// tryHelm runs Helm, and returns what it prints.
func (s *story) tryHelm(arguments ...string) (string, error) {
	s.Helper()
	printed, err := s.helmCommand(arguments...).CombinedOutput()
	return string(printed), err
}

func (s *story) helm(arguments ...string) {
	s.Helper()
	if printed, err := s.tryHelm(arguments...); err != nil {
		s.showPods()
		s.Fatalf("helm %s: %v\n%s", strings.Join(arguments, " "), err, printed)
	}
}

// refuse runs Helm, which must fail and say that text.
func (s *story) refuse(want string, arguments ...string) {
	s.Helper()
	printed, err := s.tryHelm(arguments...)
	if err == nil || !strings.Contains(printed, want) {
		s.Errorf("helm %s ends with %v, want %q in\n%s", strings.Join(arguments, " "), err, want, printed)
	}
}

// install are the arguments of an installation with these values.
func (s *story) install(values map[string]any) []string {
	s.Helper()
	content, err := yaml.Marshal(values)
	s.must(err)
	file := filepath.Join(dir, "values.yaml")
	s.must(os.WriteFile(file, content, 0o644))
	return []string{"install", "kubedevice", filepath.Join(root, "deploy", "chart"), "--values=" + file}
}

func (s *story) run(pod *corev1.Pod) *corev1.Pod {
	s.Helper()
	return clustertest.RunPod(s.ctx, s, shared.Client, pod)
}

// gpuPod returns a pod that requests GPUs by its limits alone.
func (s *story) gpuPod(name string, count int64) *corev1.Pod {
	return clustertest.IdlePod(s.namespace, name, map[corev1.ResourceName]int64{observe.Resource: count})
}

// label gives all nodes the label that chooses them, or takes it away.
func (s *story) label(value string) {
	s.Helper()
	for _, node := range shared.Nodes {
		_, err := shared.Client.CoreV1().Nodes().Patch(s.ctx, node.Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"`+chosen+`":`+value+`}}}`), metav1.PatchOptions{})
		s.must(err)
	}
}

// awaitEnrolled waits until so many nodes are enrolled, and no others are on their way.
func (s *story) awaitEnrolled(want int) {
	s.Helper()
	err := await.Until(s.ctx, "the nodes to be enrolled or to have left", func(ctx context.Context) (bool, error) {
		nodes := shared.Client.CoreV1().Nodes()
		begun, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: enrolment.GroupLabel})
		if err != nil {
			return false, err
		}
		done, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: enrolment.Label})
		return err == nil && len(begun.Items) == want && len(done.Items) == want, err
	})
	if err != nil {
		s.showPods()
		s.Fatal(err)
	}
}

// checkBystander fails the test if the pod that requests no devices has noticed anything, or a
// kubelet was restarted.
func (s *story) checkBystander() {
	s.Helper()
	pod, err := shared.Client.CoreV1().Pods(s.namespace).Get(s.ctx, s.bystander.Name, metav1.GetOptions{})
	s.must(err)
	if diff := cmp.Diff(s.bystander.Status.ContainerStatuses, pod.Status.ContainerStatuses); diff != "" {
		s.Errorf("the pod without devices has changed:\n%s", diff)
	}
}

// checkKubelets fails the test if a kubelet was restarted.
func (s *story) checkKubelets() {
	s.Helper()
	for _, node := range shared.Nodes {
		if pid := node.Kubelet.PID(); pid != s.kubelets[node.Name] {
			s.Errorf("the kubelet of %s was %d and is %d", node.Name, s.kubelets[node.Name], pid)
		}
	}
}

// checkEvicted fails the test unless a pod is gone.
func (s *story) checkEvicted(name string) {
	s.Helper()
	_, err := shared.Client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		s.Errorf("pod %s was not evicted: %v", name, err)
	}
}

// showPods logs what the pods of the release are doing.
func (s *story) showPods() {
	ctx := context.WithoutCancel(s.ctx)
	for _, arguments := range [][]string{
		{"--namespace=" + system, "get", "pods,jobs", "--output=wide"},
		{"--namespace=" + system, "get", "events"},
		{"--namespace=" + system, "logs", "--selector=app.kubernetes.io/component=node", "--prefix", "--tail=40"},
		{"--namespace=" + system, "logs", "--selector=app.kubernetes.io/component=hook", "--prefix", "--tail=40"},
	} {
		printed, err := shared.Kubectl(ctx, arguments...)
		s.Logf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, printed)
	}
}
