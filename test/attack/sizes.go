// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// tooMuch is what makes messages too long: a list of containers that cannot be sent, or none, and
// an answer.
type tooMuch struct {
	List   string `json:"list"`
	Answer bool   `json:"answer"`
}

// lists are the pods of a list that cannot be sent, by what is too long.
var lists = map[string]func(s *Stage) []*corev1.Pod{
	"variables": (*Stage).manyVariables, "arguments": (*Stage).expandedArgs, "labels": (*Stage).manyLabels,
	"volumes": (*Stage).manyVolumes, "": func(*Stage) []*corev1.Pod { return nil },
}

// sendTooMuch creates the pods, those of the list first. The attempt is refused if the node refuses
// each of them.
func sendTooMuch(ctx context.Context, p *trial, messages tooMuch) (got Got, err error) {
	list, known := lists[messages.List]
	if !known {
		return Got{}, fmt.Errorf("there is no list of %q", messages.List)
	}
	pods := list(p.Stage)
	if messages.Answer {
		pods = append(pods, p.longVariables())
	}
	tenant, err := p.tenantWithLarge(ctx)
	if err != nil {
		return Got{}, err
	}
	for _, pod := range pods {
		created, err := tenant.CreatePod(ctx, clustertest.On(p.node(scheduled).Name, pod))
		if err != nil {
			return Got{}, err
		}
		if got, err = p.refusedOrRuns(ctx, created); err != nil || got.Outcome != RefusedByNode {
			return got, err
		}
	}
	return got, nil
}

// refusedOrRuns waits until the node refuses the pod's sandbox or one of its containers, or until
// the pod runs.
func (s *Stage) refusedOrRuns(ctx context.Context, pod *corev1.Pod) (got Got, err error) {
	err = await.Until(ctx, "pod "+pod.Name+" to run or be refused", func(ctx context.Context) (bool, error) {
		events, err := s.admin.PodEvents(ctx, pod)
		for _, event := range events {
			if event.Reason == "FailedCreatePodSandBox" && !passing(event.Message) {
				got = Got{RefusedByNode, event.Message}
				return true, nil
			}
		}
		if err != nil {
			return false, err
		}
		now, err := s.admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		got = stateOf(now)
		return got.Outcome != "", nil
	})
	return got, err
}

// sendTooMuchWithoutBounds makes the attempt on the node whose kubecri has no bounds: it runs the
// pods of the list. If there is an answer that is too long, the runtime drops kubecri for it, and
// otherwise kubecri is restarted, as for an upgrade. The attempt succeeds if another container then
// gets what it requests of NVIDIA's runtime, or if the runtime panics at kubecri's next
// registration, as it may. Without a list, kubecri is registered again at once, and it succeeds if
// the runtime has dropped kubecri.
func sendTooMuchWithoutBounds(ctx context.Context, p *trial, messages tooMuch) (Got, error) {
	list, answer := lists[messages.List](p.Stage), messages.Answer
	node := p.node(unbounded)
	tenant, err := p.tenantWithLarge(ctx)
	if err != nil {
		return Got{}, err
	}
	if err := p.awaitEmpty(ctx); err != nil {
		return Got{}, err
	}
	for _, pod := range list {
		if _, err := tenant.RunPod(ctx, tolerant(clustertest.On(node.Name, pod))); err != nil {
			return Got{}, err
		}
	}
	before, err := os.ReadFile(node.Kubecri.LogPath)
	if err != nil {
		return Got{}, err
	}
	runtimeBefore, err := os.ReadFile(node.Containerd.LogPath)
	if err != nil {
		return Got{}, err
	}
	expected := "The container runtime has ended the NRI connection"
	if answer {
		_, err = tenant.CreatePod(ctx, tolerant(clustertest.On(node.Name, p.longVariables())))
	} else {
		expected = "Not registered with NRI; will retry"
		err = node.Kubecri.Restart(ctx)
	}
	if err != nil {
		return Got{}, err
	}
	if err := awaitLogged(ctx, node.Kubecri, len(before), expected); err != nil {
		return Got{}, err
	}
	if list == nil {
		return Got{Succeeds, "the runtime drops kubecri for its answer"}, nil
	}
	if answer {
		// The list is sent right after that.
		if err := awaitLogged(ctx, node.Containerd, len(runtimeBefore), "failed to synchronize plugin",
			"\npanic: "); err != nil {
			return Got{}, err
		}
	}
	if log, err := os.ReadFile(node.Containerd.LogPath); err != nil || strings.Contains(string(log), "\npanic: ") {
		return Got{Succeeds, "the runtime has panicked"}, err
	}
	greedy := p.pod("greedy", 0)
	env("all")(greedy)
	if _, err := tenant.RunPod(ctx, tolerant(clustertest.On(node.Name, greedy))); err != nil {
		return Got{}, err
	}
	return p.requests(ctx, greedy.Name, "main")
}

// awaitEmpty removes what the attempt before has left on the node unbounded, and waits until
// kubecri is registered there.
func (s *Stage) awaitEmpty(ctx context.Context) error {
	runtime, end, err := s.runtime(unbounded, containerdSocket)
	if err != nil {
		return err
	}
	defer end()
	return await.Until(ctx, "kubecri to be registered, without sandboxes", func(ctx context.Context) (bool, error) {
		list, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return false, err
		}
		for _, sandbox := range list.GetItems() {
			// The kubelet does the same at the same time.
			_, _ = runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.GetId()})
			_, _ = runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.GetId()})
		}
		ready, err := s.node(unbounded).Get(ctx, "/readyz")
		return len(list.GetItems()) == 0 && err == nil && strings.Contains(ready, "[+]nri ok"), nil
	})
}

// awaitLogged waits until a program's log, from a byte on, has one of the texts.
func awaitLogged(ctx context.Context, program *cluster.Component, from int, texts ...string) error {
	what := fmt.Sprintf("one of %q in the log of %s", texts, program.Name)
	return await.Until(ctx, what, func(context.Context) (bool, error) {
		log, err := os.ReadFile(program.LogPath)
		return err == nil && slices.ContainsFunc(texts, func(text string) bool {
			return strings.Contains(string(log[from:]), text)
		}), err
	})
}

// The ConfigMaps of tenantWithLarge: one of 600 KiB, and one of 997 keys.
const (
	largeMap, manyMap = "large", "many"
	manyKeys          = 997
)

// tenantWithLarge returns a tenant that has large ConfigMaps.
func (s *Stage) tenantWithLarge(ctx context.Context) (*kube.Client, error) {
	tenant, err := s.tenant(ctx)
	if err != nil {
		return nil, err
	}
	large, many := map[string]string{}, map[string]string{}
	for i := range 6 {
		large[fmt.Sprintf("LARGE_%d", i)] = strings.Repeat("x", 100<<10)
	}
	for i := range manyKeys {
		many[fmt.Sprintf("K%03d", i)] = ""
	}
	for name, data := range map[string]map[string]string{largeMap: large, manyMap: many} {
		if _, err := tenant.CoreV1().ConfigMaps(s.namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data,
		}, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return tenant, nil
}

// takeAll gives a container a variable for each key of a ConfigMap.
func takeAll(c *corev1.Container, configMap, prefix string) {
	c.EnvFrom = []corev1.EnvFromSource{{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}}
}

// several returns a pod of 7 containers, so that pod and containers are as many objects as the
// runtime does not split any further.
func (s *Stage) several(shape func(c *corev1.Container)) []*corev1.Pod {
	pod := s.pod("several", 0)
	shape(&pod.Spec.Containers[0])
	for i := range 6 {
		another := pod.Spec.Containers[0]
		another.Name = fmt.Sprintf("c%d", i)
		pod.Spec.Containers = append(pod.Spec.Containers, another)
	}
	return []*corev1.Pod{pod}
}

func (s *Stage) manyVariables() []*corev1.Pod {
	return s.several(func(c *corev1.Container) { takeAll(c, largeMap, "") })
}

func (s *Stage) expandedArgs() []*corev1.Pod {
	return s.several(func(c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "BIG", Value: strings.Repeat("x", 60<<10)}}
		for range 5 {
			c.Args = append(c.Args, "$(BIG)$(BIG)")
		}
	})
}

// manyVolumes returns a pod of 4 containers: each is described with more than 1 MiB of mounts.
func (s *Stage) manyVolumes() []*corev1.Pod {
	pods := s.several(func(c *corev1.Container) { c.Image = imageVolumes })
	pods[0].Spec.Containers = pods[0].Spec.Containers[:4]
	return pods
}

// manyLabels returns four pods: with a container each, they are 8 objects, too.
func (s *Stage) manyLabels() (pods []*corev1.Pod) {
	for i := range 4 {
		pod := s.pod(fmt.Sprintf("labels-%d", i), 0)
		pod.Annotations = map[string]string{"note": strings.Repeat("x", 250<<10)}
		pod.Labels = map[string]string{}
		for k := range 12_000 {
			pod.Labels[fmt.Sprintf("l%d", k)] = strings.Repeat("x", 63)
		}
		pods = append(pods, pod)
	}
	return pods
}

// longVariables returns a pod whose variables begin as the unlisted vendor's runtime obeys them.
// They take a little less than a message of NRI; with the value for no device, they take more.
func (s *Stage) longVariables() *corev1.Pod {
	const message, others = 4 << 20, 20 << 10
	const name = (message-others)/manyKeys - len("K000") - len("=xxx")
	pod := s.pod("long", 0)
	takeAll(&pod.Spec.Containers[0], manyMap, unlistedPrefix+strings.Repeat("X", name-len(unlistedPrefix)))
	return pod
}

// buildUnbounded builds a kubecri without the bounds of package nribound.
func buildUnbounded(ctx context.Context, path string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "unbounded", "-o", path,
		"./cmd/kubecri")
	build.Dir = root
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build kubecri without bounds: %w\n%s", err, said)
	}
	return nil
}
