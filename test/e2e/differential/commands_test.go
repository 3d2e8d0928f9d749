// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/scriptedplugin"
)

// do carries out a command of a behaviour, and returns what there is to say of it:
//
//	plugin COMMAND          a command of package scriptedplugin, to the plugin; plugin2 is another
//	                        one, and plugin-at-kubelet one at the kubelet of either node. It says
//	                        what the plugin says
//	offered ID[@NUMA]...    waits until just these devices are offered, and fails if they never are
//	stays ID[@NUMA]...      the same, and they are offered still after a while
//	left                    waits until the node's kubelet offers no device
//	resource SUFFIX         the commands that follow are about a resource whose name ends so
//	probe COMMAND           a pod with one device that runs a shell command; says what that prints,
//	                        or "does not run"
//	pod OPTION... -- COMMAND  the same with options, see side.options
//	begin COMMAND           a probe that does not end yet; says "cannot be created" once its container
//	                        could not be created
//	ends [patient]          says what the begun probe prints, or "does not run"; patient as for a pod
//	bound                   a pod with one device that has its node from the beginning, and so no
//	                        allocation; says whether it fails at the kubelet's admission
//	idle                    a pod with one device that goes on
//	restart                 its container ends; says with what the next one runs, or that it does not
//	running                 says whether it runs still
//	listed                  says which devices PodResources lists for a pod with one device that has
//	                        a sandbox, and whose container cannot be created yet
func (s *side) do(command string) (said string, err error) {
	verb, rest, _ := strings.Cut(command, " ")
	switch verb {
	case "plugin", "plugin2", atKubelet:
		p, err := s.plugin(verb)
		if err != nil {
			return "", err
		}
		return p.do(rest)
	case "offered", "stays":
		return "", s.expectOffered(rest, verb == "stays")
	case "left":
		return "", s.left()
	case "resource":
		s.resource += types.ResourceName(rest)
		return "", nil
	case "probe":
		return s.run(s.pod(rest, s.some(1)), waiting{})
	case "pod":
		return s.runWith(rest)
	case "begin":
		return s.begin(rest)
	case "ends":
		return s.await(s.begun, waiting{patient: rest == "patient"}, hasSucceeded)
	case "bound":
		return s.bound()
	case "idle":
		s.running, err = s.idle()
		return "", err
	case "restart":
		return s.restart(s.running)
	case "listed":
		return s.listed()
	case "running":
		return s.state(s.running), nil
	default:
		return "", fmt.Errorf("there is no command %q", verb)
	}
}

// begin creates a pod with one device that runs a shell command, and returns when its container
// could not be created.
func (s *side) begin(command string) (said string, err error) {
	if s.begun, err = shared.Client.CreatePod(s.ctx, s.pod(command, s.some(1))); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(s.ctx, podTimeout)
	defer cancel()
	_, err = shared.Client.AwaitPod(ctx, s.begun, "to be refused", isRefused)
	return "cannot be created", err
}

// expectOffered returns an error unless just these devices are offered.
func (s *side) expectOffered(list string, forAWhile bool) error {
	want, err := scriptedplugin.Words(list)
	if err != nil {
		return err
	}
	got := ""
	if forAWhile {
		got = s.stays(want...)
	} else {
		got = s.offered(want...)
	}
	if slices.Sort(want); got != strings.Join(want, " ") {
		return fmt.Errorf("%q is offered", got)
	}
	return nil
}

// waiting says for what of a pod a behaviour waits.
type waiting struct {
	// patient says that a container which fails to be created is waited for.
	patient bool
	// unschedulable says that the pod must find no node, for a reason with this text in it.
	unschedulable bool
	because       string
}

// runWith runs a pod with options, and returns what it prints, or "not scheduled":
//
//	count=N               it requests so many devices
//	and=SUFFIX            and one of the resource whose name ends so
//	env=NAME=VALUE        it sets a variable
//	volume=PATH           it has an empty volume at the path
//	host=PATH             it has the path of the node at the same path
//	second, init          a second container, or an init container, does the same
//	patient               its container may fail to be created at first
//	unschedulable[=TEXT]  it finds no node, for a reason with the text
func (s *side) runWith(line string) (string, error) {
	options, command, found := strings.Cut(line, "-- ")
	if !found {
		return "", fmt.Errorf("a pod has no command")
	}
	pod := s.pod(command, s.some(1))
	main := &pod.Spec.Containers[0]
	var w waiting
	for option := range strings.FieldsSeq(options) {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "count":
			count, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return "", err
			}
			main.Resources.Limits = limits(s.some(count))
		case "and":
			requests := s.some(1)
			requests[s.resource+types.ResourceName(value)] = 1
			main.Resources.Limits = limits(requests)
		case "env":
			variable, set, _ := strings.Cut(value, "=")
			main.Env = append(main.Env, corev1.EnvVar{Name: variable, Value: set})
		case "volume":
			mountAt(pod, value, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		case "host":
			mountAt(pod, value, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: value}})
		case "second":
			second := *main.DeepCopy()
			second.Name = "second"
			pod.Spec.Containers = append(pod.Spec.Containers, second)
		case "init":
			first := *main.DeepCopy()
			first.Name = "first"
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, first)
		case "patient":
			w.patient = true
		case "unschedulable":
			w.unschedulable, w.because = true, value
		default:
			return "", fmt.Errorf("a pod has no option %q", option)
		}
	}
	return s.run(pod, w)
}

// mountAt gives the pod's first container a volume at a path.
func mountAt(pod *corev1.Pod, path string, source corev1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: "v", MountPath: path})
}

// state says whether a pod runs as it did.
func (s *side) state(pod *corev1.Pod) string {
	now, err := shared.Client.CoreV1().Pods(pod.Namespace).Get(s.ctx, pod.Name, metav1.GetOptions{})
	if err != nil || now.Status.ContainerStatuses[0].RestartCount > 0 || now.Status.Phase != corev1.PodRunning {
		return fmt.Sprint("not as it was: ", err)
	}
	return "ready still"
}
