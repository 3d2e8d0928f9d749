// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// nodeState are what facts are about, read once.
type nodeState struct {
	kubelet Kubelet
	client  kubernetes.Interface // the kubelet's identity
	pods    []corev1.Pod         // of this node
	devices kubeletstate.State
}

// unusableKubelet is about a kubelet of which is not known how it was started.
func unusableKubelet(err error) *Fact {
	found := fact("kubelet", "%v", err).blocks("the kubelet must be one that can be pointed at kubecri")
	return &found
}

// podsOn returns the pods of a node, also those that have ended.
func podsOn(ctx context.Context, client kubernetes.Interface, node string) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %q: %w", node, err)
	}
	return list.Items, nil
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// nodeFact is about the node itself.
func (e *Enrolment) nodeFact(ctx context.Context, s *nodeState) Fact {
	node, err := s.client.CoreV1().Nodes().Get(ctx, s.kubelet.Node, metav1.GetOptions{})
	if err != nil {
		return unreadable("node", err)
	}
	info := node.Status.NodeInfo
	found := fact("node", "%s: kubelet %s, %s", s.kubelet.Node, info.KubeletVersion, info.ContainerRuntimeVersion)
	if ready := readyCondition(node); ready == nil || ready.Status != corev1.ConditionTrue {
		found.Finding += ", not ready"
		return found.blocks("an enrolment is judged by whether the node is ready after it: repair the node first")
	}
	return found
}

// readyCondition returns the node's condition Ready, or nil.
func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	_, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	return ready
}

// cdiFact is about CDI devices, which some device plugins give.
func (e *Enrolment) cdiFact(ctx context.Context, s *nodeState) Fact {
	if err := e.options.Runtimes.CheckCDI(ctx, s.kubelet.Endpoint); err != nil {
		return fact("CDI", "%v", err).notice("containers whose device plugin gives CDI devices are refused until then")
	}
	return fact("CDI", "on")
}

// maxSkew is how far the clocks of node and API server may be apart without a notice.
const maxSkew = 10 * time.Second

// clockFact is about the node's clock, by which credentials and seals are valid or not.
func (e *Enrolment) clockFact(ctx context.Context, s *nodeState) Fact {
	there, err := e.options.APIServers.Time(ctx, s.kubelet.Kubeconfig)
	if err != nil {
		return fact("clock", "unknown: %v", err).notice("see that the node's clock is synchronized")
	}
	skew := time.Since(there).Truncate(time.Second)
	found := fact("clock", "%v from the API server's", skew)
	if skew.Abs() > maxSkew {
		return found.notice("synchronize the node's clock")
	}
	return found
}

// programFact is about the program that the unit starts.
func (e *Enrolment) programFact(ctx context.Context) Fact {
	advice := fmt.Sprintf("put this program at %s, where its unit starts it", e.options.Program)
	version, err := e.options.Host.Machine.Run(ctx, e.options.Program, "--version")
	if err != nil {
		return fact("program", "%v", err).blocks(advice)
	}
	found := fact("program", "%s: %s", e.options.Program, strings.TrimSpace(version))
	if strings.TrimSpace(version) != e.options.Version {
		return found.blocks(fmt.Sprintf("%s; this one is %s", advice, e.options.Version))
	}
	return found
}

// pluginFacts are about kubecri's device plugins, each of which must load into this program, on
// this machine.
func (e *Enrolment) pluginFacts(ctx context.Context, s *nodeState) []Fact {
	files, err := e.pluginFiles()
	if err != nil {
		return []Fact{unreadable("plugins", err)}
	}
	var facts []Fact
	for _, file := range files {
		found := fact("plugin", "%s loads", file)
		if err := e.options.Kubecri.CheckPlugin(ctx, file); err != nil {
			found = fact("plugin", "%v", err).blocks("kubecri would leave it out: do as it says, or take the file away")
		}
		facts = append(facts, found)
	}
	if len(files) == 0 && len(s.devices.Resources) == 0 {
		facts = append(facts, fact("plugins", "there are none in %s, and none is registered with the kubelet",
			e.options.PluginDir).notice("the node has no devices until a device plugin is there"))
	}
	return facts
}

// pluginFiles returns the paths of kubecri's plugin files, which hidden ones are not, in the order
// in which it loads them.
func (e *Enrolment) pluginFiles() ([]string, error) {
	files, err := filepath.Glob(e.options.Host.path(filepath.Join(e.options.PluginDir, "*.so")))
	return slices.DeleteFunc(files, func(file string) bool {
		return strings.HasPrefix(filepath.Base(file), ".")
	}), err
}

// kubeletDirectory is where the kubelet's device plugins register.
const kubeletDirectory = "/var/lib/kubelet/device-plugins"

// managerFacts are about who manages devices now.
func (e *Enrolment) managerFacts(ctx context.Context, s *nodeState) []Fact {
	var facts []Fact
	for _, resource := range s.devices.Resources {
		facts = append(facts, fact("device plugin", "%s is the kubelet's", resource).notice(
			"it stays so until its plugin has moved to kubecri: a DaemonSet for the nodes without the label "+Label+
				", and one in kubecri's directory for those with it (deploy/device-plugins)"))
	}
	for i := range s.pods {
		pod := &s.pods[i]
		if hasEnded(pod) || !slices.ContainsFunc(pod.Spec.Volumes, registersWithKubelet) {
			continue
		}
		found := fact("device plugin", "pod %s/%s uses the kubelet's directory", pod.Namespace, pod.Name)
		if strings.Contains(pod.Labels["app.kubernetes.io/managed-by"], "gpu-operator") {
			facts = append(facts, found.notice("gpu-operator puts it back: turn its device plugin off "+
				"(devicePlugin.enabled=false) and deploy it yourself"))
			continue
		}
		facts = append(facts, found)
	}
	slices, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", s.kubelet.Node).String(),
	})
	if err != nil {
		return facts // this server has no DRA, or the kubelet may not see it: then it has no devices of it
	}
	for _, slice := range slices.Items {
		facts = append(facts, fact("DRA", "driver %s has devices of this node", slice.Spec.Driver).notice(
			"kubecri does not know what resource claims hold: it must not serve the same devices"))
	}
	return facts
}

func registersWithKubelet(volume corev1.Volume) bool {
	return volume.HostPath != nil && filepath.Clean(volume.HostPath.Path) == kubeletDirectory
}

// keepDevices says what becomes of pods that hold devices of the kubelet.
const keepDevices = "they keep them, also when the devices' plugin moves to kubecri"

// holdersNotice is about the pods that hold devices of the kubelet. keep says what becomes of them,
// and advice what to do where there are plugin files for the same devices.
func (e *Enrolment) holdersNotice(s *nodeState, keep, advice string) Fact {
	holders := s.holders()
	if len(holders) == 0 {
		return fact("holders", "no pod holds a device of the kubelet")
	}
	found := fact("holders", "devices of the kubelet are held by %s", strings.Join(holders, ", "))
	if files, err := e.pluginFiles(); (err != nil || len(files) > 0) && !e.options.OtherDevices {
		return found.blocks("a plugin file for the same devices does not know these pods, and others would be given " +
			"what they hold: " + advice)
	}
	return found.notice(keep)
}

// initialHolders returns the init containers, sidecars apart, that hold devices of the kubelet, or
// request them, sorted.
func (s *nodeState) initialHolders() []string {
	var found []string
	for i := range s.pods {
		pod := &s.pods[i]
		if hasEnded(pod) {
			continue
		}
		devices := s.deviceContainers(pod)
		for j := range pod.Spec.InitContainers {
			container := &pod.Spec.InitContainers[j]
			if devices[container.Name] && !deviceinfo.IsSidecar(container) {
				found = append(found, fmt.Sprintf("%s/%s (%s)", pod.Namespace, pod.Name, container.Name))
			}
		}
	}
	slices.Sort(found)
	return found
}

// deviceContainers returns the containers of the pod that hold devices of the kubelet, or request
// them.
func (s *nodeState) deviceContainers(pod *corev1.Pod) map[string]bool {
	found := map[string]bool{}
	for _, holding := range s.devices.Holdings {
		if holding.PodUID == string(pod.UID) {
			found[holding.Container] = true
		}
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if len(s.requestedBy(container)) > 0 {
			found[container.Name] = true
		}
	}
	return found
}

// down returns the containers with devices of the kubelet that do not run now, and may again,
// sorted. A kubelet of this version that starts may not see that a container runs again while the
// runtime still has the one before it: kubelets before 1.35 look at any one of them.
func (s *nodeState) down(kubelet string) []string {
	own, err := version.ParseGeneric(kubelet)
	readsOne := err == nil && own.LessThan(version.MajorMinor(1, 35))
	var found []string
	for i := range s.pods {
		pod := &s.pods[i]
		if hasEnded(pod) {
			continue
		}
		statuses := map[string]corev1.ContainerStatus{}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			statuses[status.Name] = status
		}
		devices := s.deviceContainers(pod)
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			status := statuses[container.Name]
			before := status.LastTerminationState.Terminated
			switch {
			case !devices[container.Name]:
			case status.State.Running == nil:
				found = append(found, fmt.Sprintf("%s/%s (%s)", pod.Namespace, pod.Name, container.Name))
			case readsOne && before != nil:
				_, id, _ := strings.Cut(before.ContainerID, "://")
				found = append(found, fmt.Sprintf("%s/%s (%s, which this kubelet mistakes for one that has ended: "+
					"crictl rm %s)", pod.Namespace, pod.Name, container.Name, id))
			}
		}
	}
	slices.Sort(found)
	return found
}

// holders returns who holds what of the kubelet, or is about to, sorted. A pod that is over holds
// nothing.
func (s *nodeState) holders() []string {
	var holders []string
	for i := range s.pods {
		pod := &s.pods[i]
		if hasEnded(pod) {
			continue
		}
		var held []string
		for _, holding := range s.devices.Holdings {
			if holding.PodUID == string(pod.UID) {
				held = append(held, fmt.Sprintf("%s: %s %s", holding.Container, holding.Resource,
					strings.Join(holding.IDs, " ")))
			}
		}
		if len(held) == 0 {
			held = s.requested(pod)
		}
		if len(held) > 0 {
			holders = append(holders, fmt.Sprintf("%s/%s (%s)", pod.Namespace, pod.Name, strings.Join(held, ", ")))
		}
	}
	slices.Sort(holders)
	return holders
}

// requested returns the kubelet's resources that the pod requests, sorted.
func (s *nodeState) requested(pod *corev1.Pod) []string {
	var found []string
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		found = append(found, s.requestedBy(container)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// requestedBy returns the kubelet's resources that the container requests.
func (s *nodeState) requestedBy(container corev1.Container) []string {
	var found []string
	for name, quantity := range container.Resources.Limits {
		if !quantity.IsZero() && slices.Contains(s.devices.Resources, types.ResourceName(name)) {
			found = append(found, string(name))
		}
	}
	return found
}

// minFreeBytes is how much room the state directory must have: its files are small, but none must
// ever be missed.
const minFreeBytes = 64 << 20

func (e *Enrolment) diskFact() Fact {
	path := e.options.StateDir
	for !e.options.Host.exists(path) {
		path = filepath.Dir(path)
	}
	free, err := e.options.Host.Machine.Free(e.options.Host.path(path))
	if err != nil {
		return unreadable("disk", err)
	}
	found := fact("disk", "%d MiB free for %s", free>>20, e.options.StateDir)
	if free < minFreeBytes {
		return found.blocks(fmt.Sprintf("kubecri grants nothing that it cannot write down: make %d MiB free",
			minFreeBytes>>20))
	}
	return found
}
