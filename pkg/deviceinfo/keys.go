// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import "slices"

// Key is a key of an annotation or a label that a program of KubeDevice, or the container runtime
// on its behalf, reads from an object of the API. A test finds the keys in the sources, and another
// has the policies refuse them.
type Key struct {
	// Name is the key. One that ends with a slash is the beginning of keys.
	Name string
	// Label says that it is the key of a label, not of an annotation.
	Label bool
	// Objects are the resources that have it, such as pods.
	Objects []string
	// Weakens is which defence somebody weakens who writes, changes or removes it, and Policy the
	// admission policy, of deploy/policies or deploy/policies-optional, that refuses that. Attacks
	// are the attempts of test/attack/README.md that make use of it.
	Weakens, Policy string
	Attacks         []string
	// Harmless is why it weakens nothing, where Weakens is empty.
	Harmless string
}

// Keys returns all keys that are read. A key that is not among them must not be read: add it here,
// and where it weakens a defence, with its policy and an attempt to make use of it.
func Keys() []Key { return slices.Clone(keys) }

var keys = []Key{
	{
		Name: Annotation, Objects: []string{"pods"},
		Weakens: "which devices a pod was allocated: the pod gets others, or the scheduler counts them as free",
		Policy:  "kubedevice-pod-allocations", Attacks: []string{"create-bound", "patch-waiting", "books-removed"},
	},
	{
		Name: Annotation, Objects: []string{"bindings"},
		Weakens: "the same: the API server copies the annotations of a Binding onto the pod",
		Policy:  "kubedevice-bindings", Attacks: []string{"bind-allocation", "bind-allocation-legacy"},
	},
	{
		Name: "KubeDevice/Seal", Objects: []string{"pods"},
		Weakens: "that an allocation is the scheduler's: without its seal, what a pod holds does not count",
		Policy:  "kubedevice-pod-allocations", Attacks: []string{"books-seal-removed", "seal-replayed"},
	},
	{
		Name: "KubeDevice/Seal", Objects: []string{"bindings"}, Weakens: "the same",
		Policy: "kubedevice-bindings", Attacks: []string{"seal-own-key"},
	},
	{
		Name: Annotation, Objects: []string{"nodes"}, Weakens: "what devices a node has, and which are in use",
		Policy: "kubedevice-node-inventories", Attacks: []string{"inventory-patch", "inventory-removed"},
	},
	{
		Name: HoldersAnnotation, Objects: []string{"nodes"}, Weakens: "which pods hold devices without a seal",
		Policy: "kubedevice-node-inventories", Attacks: []string{"holders-forged"},
	},
	{
		Name: UnhealthyAnnotation, Objects: []string{"nodes"}, Weakens: "that a failed device is given to no pod",
		Policy: "kubedevice-node-inventories", Attacks: []string{"health-forged"},
	},
	{
		Name: AttributesAnnotation, Objects: []string{"nodes"},
		Weakens: "that people, tools, and pods that choose GPUs by their models see a device's true model",
		Policy:  "kubedevice-node-inventories", Attacks: []string{"attributes-forged"},
	},
	{
		Name: UsageAnnotation, Objects: []string{"nodes"},
		Weakens: "that people and tools see how much of a device is used; the scheduler does not read it",
		Policy:  "kubedevice-node-inventories", Attacks: []string{"usage-forged"},
	},
	{
		Name: ShareEnforcementAnnotation, Objects: []string{"nodes"},
		Weakens: "that pods which demand that shares are held to get only devices on which they are",
		Policy:  "kubedevice-node-inventories", Attacks: []string{"enforcement-forged"},
	},
	{
		Name: ReplacementsAnnotation, Objects: []string{"nodes"}, Weakens: "that only a node requests other devices",
		Policy: "kubedevice-node-inventories", Attacks: []string{"replacements-forged"},
	},
	{
		Name: RequiredPluginAnnotation, Objects: []string{"nodes"},
		Weakens: "that device pods require kubecri: they start without their devices while it is away",
		Policy:  "kubedevice-node-inventories", Attacks: []string{"required-plugin-forged"},
	},
	{
		Name: DeviceTaintsAnnotation, Objects: []string{"nodes"},
		Weakens: "that administrators keep pods off a device: a node that is compromised attracts them",
		Policy:  "kubedevice-node-inventories", Attacks: []string{"taints-own-kubelet"},
	},
	{
		Name: ToleratedPluginsAnnotation, Objects: []string{"pods", "bindings"},
		Weakens: "that the runtime creates no container while kubecri is away, where it requires kubecri for all",
		Policy:  "kubedevice-missing-plugins", Attacks: []string{"tolerate", "tolerate-binding", "away-tolerate"},
	},
	{
		Name: ToleratedPluginsAnnotation + "/", Objects: []string{"pods", "bindings"}, Weakens: "the same",
		Policy:  "kubedevice-missing-plugins",
		Attacks: []string{"tolerate-pod", "tolerate-container", "away-tolerate-pod", "away-tolerate-container"},
	},
	{
		Name: "kubedevice.io/devices", Label: true, Objects: []string{"nodes"},
		Weakens: "that kubecri runs on a node of the chart, and its device firewall with it",
		Policy:  "kubedevice-node-labels", Attacks: []string{"label-devices-removed", "label-devices-changed"},
	},
	{
		Name: "kubedevice.io/enrolled", Label: true, Objects: []string{"nodes"},
		Weakens: "that a vendor's device plugin registers with kubecri, not with the kubelet",
		Policy:  "kubedevice-node-labels", Attacks: []string{"label-enrolled-removed"},
	},
	{
		Name: "kubedevice.io/node-group", Label: true, Objects: []string{"nodes"},
		Weakens: "that the chart's DaemonSet stays on a node that it has enrolled",
		Policy:  "kubedevice-node-labels",
		Attacks: []string{"label-group-removed", "label-group-changed", "label-group-added"},
	},
	{
		Name: "cdi.k8s.io/", Objects: []string{"pods"},
		Weakens: "that a container gets its devices from kubecri alone; the device firewall refuses it, too",
		Policy:  "kubedevice-device-requests", Attacks: []string{"firewall-cdi"},
	},
	{
		Name: "cdi.k8s.io", Objects: []string{"pods"},
		Harmless: "the domain of the keys above; nvidia.cdi.k8s.io alone, which an NRI plugin of NVIDIA's reads, " +
			"counts as one",
	},
	{
		Name: "io.kubernetes.cri-o.Devices", Objects: []string{"pods"}, Weakens: "the same, with CRI-O",
		Policy: "kubedevice-device-requests", Attacks: []string{"firewall-file", "firewall-file-many"},
	},
	{
		Name: "devices.crio.io", Objects: []string{"pods"}, Weakens: "the same, with CRI-O",
		Policy: "kubedevice-device-requests", Attacks: []string{"firewall-file-key", "firewall-file-container"},
	},
	{
		Name: "kubedevice.io/scheduler-api", Objects: []string{"leases"},
		Weakens: "where kubectl device finds the scheduler; what it sends there has no credentials in it",
		Policy:  "kubedevice-scheduler-addresses", Attacks: []string{"scheduler-address"},
	},
	{
		Name: "kubedevice.io/drain", Objects: []string{"leases"},
		Harmless: "it counts while the lease kubedevice-leave is held, which only administrators and the hook of the " +
			"chart's uninstallation may write",
	},
	{
		Name: requiredPlugins, Objects: []string{"pods", "bindings"},
		Harmless: "it makes a container require more plugins, and takes none away that the runtime requires of all. " +
			"A tenant that removes it from its pod starts its own container without its own devices",
	},
	{
		Name: OnDeviceFailureAnnotation, Objects: []string{"pods", "namespaces"},
		Harmless: "it is about what becomes of the pod itself when its device fails",
	},
	{
		Name: DeviceFailureGracePeriodAnnotation, Objects: []string{"pods", "namespaces"}, Harmless: "the same",
	},
	{
		Name: OnShareExceededAnnotation, Objects: []string{"pods"},
		Weakens: "that a container which uses more than its share of a device is stopped, where the node does that",
		Policy:  "kubedevice-pod-allocations", Attacks: []string{"exceeded-ignore", "exceeded-patch"},
	},
	{
		Name: OnShareExceededAnnotation, Objects: []string{"namespaces"},
		Harmless: "administrators alone may write namespaces, and permit it to the pods of one by it",
	},
	{
		Name: LeastEnforcementAnnotation, Objects: []string{"pods"},
		Harmless: "it is about which nodes the pod itself may go to",
	},
	{
		Name: "KubeDevice/Grant", Objects: []string{"pods"},
		Harmless: "it counts on containers in the runtime alone, and only with the node's own signature",
	},
	{
		Name: "kubernetes.io/config.source", Objects: []string{"pods"},
		Harmless: "the kubelet writes it over what the API has, so no pod of the API is taken for a static one",
	},
	{
		Name: "kubedevice.io/stand-in", Objects: []string{"pods"},
		Harmless: "device plugins give it to containers; the pod's is not read",
	},
	{
		Name: "kubedevice.io/unschedulable", Objects: []string{"nodes"},
		Harmless: "it is the key of a taint in " + DeviceTaintsAnnotation + ", which is above",
	},
	{
		Name: "kubedevice.io/unreadable-taints", Objects: []string{"nodes"}, Harmless: "the same",
	},
	{
		Name: "nvidia.com/", Objects: []string{"pods"},
		Harmless: "HAMi's and KAI's annotations request devices for the pod itself, as " + Annotation + " does",
	},
	{Name: "hami.io/", Objects: []string{"pods"}, Harmless: "the same"},
	{Name: "kai.scheduler/", Objects: []string{"pods"}, Harmless: "the same"},
	{Name: "gpu-fraction", Objects: []string{"pods"}, Harmless: "the same, as do all keys that begin with it"},
	{Name: "gpu-memory", Objects: []string{"pods"}, Harmless: "the same, as do all keys that begin with it"},
	{Name: "gpu-sm-percentage", Objects: []string{"pods"}, Harmless: "a pod that has it waits"},
	{Name: "gpu-sm-cores", Objects: []string{"pods"}, Harmless: "the same"},
	{
		Name: "app.kubernetes.io/managed-by", Label: true, Objects: []string{"pods"},
		Harmless: "kubecri enrol warns of NVIDIA's operator by it, and decides nothing",
	},
	{
		Name: "app.kubernetes.io/component", Label: true, Objects: []string{"pods"},
		Harmless: "kubectl device report names schedulers by it, and decides nothing",
	},
}
