// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fourDevices are d0 to d3.
func fourDevices() (devices []*pluginapi.Device) {
	for i := range 4 {
		devices = append(devices, dev(fmt.Sprintf("d%d", i)))
	}
	return devices
}

// calls are what plugins are called for, and what becomes of it.
func calls() []behaviour {
	const count = `echo $DIFF | tr , '\n' | sort -u | grep -c ^d`
	var long []*pluginapi.Device
	for i := range 80 {
		long = append(long, dev(fmt.Sprintf("d%044d", i)))
	}
	return []behaviour{
		{name: "is called for as many devices as a pod requests", row: "count", want: "3", play: func(s *side) string {
			s.offers(fourDevices()...).serve().register()
			return s.run(s.pod(count, s.some(3)))
		}},
		{name: "lists fewer devices than a pod requests", row: "toofew", want: "not scheduled",
			play: func(s *side) string {
				s.offers(fourDevices()...).serve().register()
				pod := s.create(s.pod("echo ran", s.some(5)))
				return s.await(pod, func(now *corev1.Pod) bool {
					return slices.ContainsFunc(now.Status.Conditions, func(c corev1.PodCondition) bool {
						return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
					})
				}) + "not scheduled"
			}},
		{name: "is called for each of two containers", row: "containers", want: "2 calls, 2 devices",
			play: func(s *side) string {
				p := s.offers(fourDevices()...).serve().register()
				pod := s.pod("echo ran", s.one())
				second := *pod.Spec.Containers[0].DeepCopy()
				second.Name = "second"
				pod.Spec.Containers = append(pod.Spec.Containers, second)
				s.run(pod)
				return p.called()
			}},
		{name: "is called for an init container and the one after it", row: "init", want: "2 calls, 1 devices",
			play: func(s *side) string {
				p := s.offers(fourDevices()...).serve().register()
				pod := s.pod("echo ran", s.one())
				first := *pod.Spec.Containers[0].DeepCopy()
				first.Name = "first"
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, first)
				s.run(pod)
				return p.called()
			}},
		{name: "prefers some devices", row: "preferred", want: "d3", here: "one that the scheduler chose",
			reason: "`GetPreferredAllocation` is never called",
			play: func(s *side) string {
				p := s.offers(fourDevices()...)
				p.Preferred = []string{"d3"}
				p.serve().register()
				got := s.probe("echo $DIFF")
				if s.name == "kubecri" && strings.HasPrefix(got, "d") {
					return "one that the scheduler chose"
				}
				return got
			}},
		{name: "fails to allocate", row: "fails", want: doesNotRun, play: func(s *side) string {
			p := s.offers(dev("a")).serve().register()
			p.SetError(errors.New("no firmware"))
			return s.probe("echo ran")
		}},
		{name: "takes 24 seconds to allocate", row: "slow", want: "a after 1 calls", play: func(s *side) string {
			p := s.offers(dev("a"))
			p.OnAllocate = func([]string) error {
				time.Sleep(24 * time.Second)
				return nil
			}
			p.serve().register()
			pod := s.create(s.pod("echo $DIFF", s.one()))
			got := ""
			for got == "" || got == doesNotRun { // it is tried again
				got = s.await(pod, func(now *corev1.Pod) bool { return now.Status.Phase == corev1.PodSucceeded })
				if s.ctx.Err() != nil {
					return got
				}
			}
			allocated, _ := p.Calls()
			return fmt.Sprintf("%s after %d calls", got, len(allocated))
		}},
		{name: "requires PreStartContainer", row: "prestart", want: "ran, prepared 1", play: func(s *side) string {
			p := s.offers(dev("a"))
			p.PreStart = true
			p.serve().register()
			got := s.probe("echo ran")
			_, prepared := p.Calls()
			return fmt.Sprintf("%s, prepared %d", got, len(prepared))
		}},
		{name: "does not require PreStartContainer", row: "noprestart", want: "ran, prepared 0",
			play: func(s *side) string {
				p := s.offers(dev("a")).serve().register()
				got := s.probe("echo ran")
				_, prepared := p.Calls()
				return fmt.Sprintf("%s, prepared %d", got, len(prepared))
			}},
		{name: "requires PreStartContainer since it has come back", row: "options2", want: "ran, prepared 1",
			play: func(s *side) string {
				first := s.offers(dev("a")).serve().register()
				s.offered("a")
				first.Stop()
				s.offered()
				p := s.offers(dev("a"))
				p.PreStart = true
				p.serve().register()
				s.offered("a")
				got := s.probe("echo ran")
				_, prepared := p.Calls()
				return fmt.Sprintf("%s, prepared %d", got, len(prepared))
			}},
		{name: "has 80 devices with long IDs for one container", row: "eighty", want: "80", here: "not scheduled",
			reason: "What a container holds must fit into its annotation in the container runtime",
			play: func(s *side) string {
				s.offers(long...).serve().register()
				pod := s.create(s.pod(count, s.some(80)))
				scheduled := true
				got := s.await(pod, func(now *corev1.Pod) bool {
					scheduled = !slices.ContainsFunc(now.Status.Conditions, func(c corev1.PodCondition) bool {
						return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
							strings.Contains(c.Message, "bytes")
					})
					return now.Status.Phase == corev1.PodSucceeded || !scheduled
				})
				if !scheduled {
					return "not scheduled"
				}
				return got
			}},
	}
}

// called is how often the plugin was called for a container, and for how many devices.
func (p *plugin) called() string {
	allocated, _ := p.Calls()
	devices := map[string]bool{}
	for _, ids := range allocated {
		for _, id := range ids {
			devices[id] = true
		}
	}
	return fmt.Sprintf("%d calls, %d devices", len(allocated), len(devices))
}

// restarts are what becomes of a container that ends while the plugin has changed.
func restarts() []behaviour {
	return []behaviour{
		{name: "has a container that restarts", row: "restart", want: "runs with a, 1 calls, prepared 2",
			play: func(s *side) string {
				p := s.offers(dev("a"))
				p.PreStart = true
				p.serve().register()
				got := s.restart(s.idle())
				allocated, prepared := p.Calls()
				return fmt.Sprintf("%s, %d calls, prepared %d", got, len(allocated), len(prepared))
			}},
		{name: "has come back when a container restarts", row: "restartback", want: "runs with a, 1 and 0 calls",
			play: func(s *side) string {
				first := s.offers(dev("a")).serve().register()
				pod := s.idle()
				first.Stop()
				s.offered()
				second := s.offers(dev("a")).serve().register()
				s.offered("a")
				got := s.restart(pod)
				before, _ := first.Calls()
				after, _ := second.Calls()
				return fmt.Sprintf("%s, %d and %d calls", got, len(before), len(after))
			}},
		{name: "lists a container's device as unhealthy when it restarts", row: "restartill", want: "runs with a",
			here:   doesNotRun,
			reason: "A container that restarts on a device that is unhealthy waits until it is healthy",
			play: func(s *side) string {
				p := s.offers(dev("a")).serve().register()
				pod := s.idle()
				p.SetDevices(unhealthy("a"))
				s.offered()
				return s.restart(pod)
			}},
		{name: "lists a container's device no more when it restarts", row: "restartgone", want: "runs with a",
			here: doesNotRun, reason: "the node may have given it to something else since",
			play: func(s *side) string {
				p := s.offers(dev("a")).serve().register()
				pod := s.idle()
				p.SetDevices(dev("z"))
				s.offered("z")
				return s.restart(pod)
			}},
		{name: "is gone when a container restarts", row: "restartaway", want: "runs with a",
			here: doesNotRun, reason: "While the plugin is gone, nothing is known of the device",
			play: func(s *side) string {
				p := s.offers(dev("a")).serve().register()
				pod := s.idle()
				p.Stop()
				s.offered()
				return s.restart(pod)
			}},
		{name: "loses a device while a container runs", row: "runs", want: "ready still", play: func(s *side) string {
			p := s.offers(dev("a")).serve().register()
			pod := s.idle()
			p.SetDevices()
			s.offered()
			now, err := shared.Client.CoreV1().Pods(pod.Namespace).Get(s.ctx, pod.Name, metav1.GetOptions{})
			if err != nil || now.Status.ContainerStatuses[0].RestartCount > 0 || now.Status.Phase != corev1.PodRunning {
				return fmt.Sprint("not as it was: ", err)
			}
			return "ready still"
		}},
	}
}
