// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// replica returns one of the pods of a template.
func (e *Engine) replica(request *schedulerapi.FitRequest, i int) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: *request.Template.ObjectMeta.DeepCopy(), Spec: *request.Template.Spec.DeepCopy(),
	}
	var namespace string
	namespace, pod.Name = podName(request)
	if request.Replicas > 1 {
		pod.Name = fmt.Sprintf("%s-%d", strings.TrimSuffix(pod.Name, "-"), i)
	}
	pod.Namespace = namespace
	pod.UID, pod.ResourceVersion, pod.Spec.NodeName = types.UID(e.uid()), "", ""
	corev1defaults.SetObjectDefaults_Pod(pod)
	pod.Spec.SchedulerName = e.schedulerName(pod)
	return pod
}

// podName returns namespace and name of the pod of a template, without the number of a replica.
func podName(request *schedulerapi.FitRequest) (namespace, name string) {
	template := &request.Template
	return cmp.Or(request.Namespace, template.Namespace, metav1.NamespaceDefault),
		cmp.Or(template.Name, template.GenerateName, "pod")
}

// ofManifest reports whether a pod that runs was made from the manifest of a template: it is the
// manifest's pod, or one of its controller, or of a controller that this has made.
func ofManifest(pod *v1.Pod, request *schedulerapi.FitRequest) bool {
	namespace, name := podName(request)
	if pod.Namespace != namespace {
		return false
	}
	controller := metav1.GetControllerOf(pod)
	if controller == nil {
		return pod.Name == name
	}
	return (controller.Name == name || strings.HasPrefix(controller.Name, name+"-")) &&
		labels.SelectorFromSet(request.Template.Labels).Matches(labels.Set(pod.Labels))
}

// schedulerName returns the name of the scheduler that a new pod has when it is created. Where
// KubeDevice's scheduler is not the default one, an admission policy, kubedevice-scheduler-name,
// gives its name to pods that request devices and name no other scheduler.
func (e *Engine) schedulerName(pod *v1.Pod) string {
	written := pod.Spec.SchedulerName
	if written != v1.DefaultSchedulerName || e.serving[written] != nil || !requestsDevices(pod) {
		return written
	}
	if e.serving[frameworkplugin.SchedulerName] != nil {
		return frameworkplugin.SchedulerName
	}
	for only := range e.serving {
		if len(e.serving) == 1 {
			return only // the policy of this cluster has another name
		}
	}
	return written
}

// requestsDevices reports what the policy tests: an annotation, or an extended resource in limits.
// Which of these are devices, the policy of each cluster says.
func requestsDevices(pod *v1.Pod) bool {
	if pod.Annotations[deviceinfo.Annotation] != "" {
		return true
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name, quantity := range list[i].Resources.Limits {
				if resource.IsExtendedResource(sdk.ResourceName(name)) && !quantity.IsZero() {
					return true
				}
			}
		}
	}
	return false
}
