// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAKeyThatIsNearlyOursIsAMistake(t *testing.T) {
	const no = "no program reads it"
	for key, want := range map[string]string{
		"KubeDevice/DeviceInfo": "", "KubeDevice/Seal": "", "KubeDevice/Grant": "", // programs read them
		"example.com/owner": "", "kubevirt.io/deviceinfo": "", "DeviceInfo": "", "kubedevice.io/team": no,
		"kubernetes.io/config.source": "", "kubelet.io/DeviceInfo": "", "": "", "/": "", "KubeDevice": "",

		"kubedevice/deviceinfo":                no + `; did you mean "KubeDevice/DeviceInfo"?`,
		"KubeDevice/DeviceInfos":               no + `; did you mean "KubeDevice/DeviceInfo"?`,
		"KubeDevices/DeviceInfo":               no + `; did you mean "KubeDevice/DeviceInfo"?`,
		"kube-device/device-info":              no + `; did you mean "KubeDevice/DeviceInfo"?`,
		"kubedevice.io/DeviceInfo":             no + `; did you mean "KubeDevice/DeviceInfo"?`,
		"KubeDevice.DeviceInfo":                no + `; did you mean "KubeDevice/DeviceInfo"?`,
		"KubeDevice/OnDeviceFailures":          no + `; did you mean "KubeDevice/OnDeviceFailure"?`,
		"KubeDevice/OnDevicefailure":           no + `; did you mean "KubeDevice/OnDeviceFailure"?`,
		"KubeDevice/DeviceFailure":             no + `; did you mean "KubeDevice/OnDeviceFailure"?`,
		"KubeDevice/DeviceFailureGracePeriods": no + `; did you mean "KubeDevice/DeviceFailureGracePeriod"?`,
		"KubeDevice/DeviceFailurePeriod":       no + `; did you mean "KubeDevice/DeviceFailureGracePeriod"?`,
		"KubeDevice/Policy":                    no,
		"KubeDevice/DeviceTaints":              "it is read from nodes and not from pods",
	} {
		mistake, got := CheckAnnotation(key, ""), ""
		if mistake != nil {
			got = strings.TrimPrefix(mistake.String(), "annotation "+key+": ")
		}
		if got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
		if refused := strings.Contains(want, "did you mean"); mistake != nil && mistake.Refused != refused {
			t.Errorf("%q: a pod that requests devices is refused: %v, want %v", key, mistake.Refused, refused)
		}
	}
}

// allDevices has every extended resource as a device.
type allDevices struct{}

func (allDevices) Serves(types.ResourceName) bool { return true }

func TestAMistakeRefusesPodsThatRequestDevicesAndDoNotRun(t *testing.T) {
	const request = `{"runningcontainer":{"main":{"requests":{"gpu/a/cards":1}}}}`
	const zero = `{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":0}}}}`
	for name, test := range map[string]struct {
		annotations map[string]string
		gpus, node  string
		want        string // of the error
		mistakes    int
	}{
		"a request under a misspelled key": {
			annotations: map[string]string{"KubeDevice/Deviceinfo": request},
			want: `annotation KubeDevice/Deviceinfo: no program reads it; did you mean "KubeDevice/DeviceInfo"? ` +
				"Correct or remove it: the pod waits until then",
		},
		"a request under a misspelled key, and limits": {
			annotations: map[string]string{"KubeDevice/Deviceinfo": request}, gpus: "1",
			want: "annotation KubeDevice/Deviceinfo",
		},
		"both keys": {
			annotations: map[string]string{"KubeDevice/Deviceinfo": request, "KubeDevice/DeviceInfo": request},
			want:        "annotation KubeDevice/Deviceinfo",
		},
		"several misspelled keys": {
			annotations: map[string]string{"KubeDevice/OnDevicefailure": "Evict", "KubeDevice/Deviceinfo": request},
			gpus:        "1", want: "annotation KubeDevice/Deviceinfo",
		},
		"another misspelled key of a pod with limits": {
			annotations: map[string]string{"KubeDevice/OnDevicefailure": "Evict"}, gpus: "1",
			want: "annotation KubeDevice/OnDevicefailure",
		},
		"another misspelled key of a pod that requests no devices": {
			annotations: map[string]string{"KubeDevice/OnDevicefailure": "Evict"},
		},
		"another misspelled key of a pod whose annotation requests no devices": {
			annotations: map[string]string{"KubeDevice/OnDevicefailure": "Evict", "KubeDevice/DeviceInfo": "{}"},
		},
		"another misspelled key of a pod that runs": {
			annotations: map[string]string{"KubeDevice/OnDevicefailure": "Evict"}, gpus: "1", node: "n",
		},
		"a count of 0 in a pod that runs": {
			annotations: map[string]string{"KubeDevice/DeviceInfo": zero}, gpus: "1", node: "n",
		},
		"a count of 0": {
			annotations: map[string]string{"KubeDevice/DeviceInfo": zero}, gpus: "1",
			want: `annotation KubeDevice/DeviceInfo: runningcontainer["main"].requests["nvidia.com/gpu"]`,
		},
		"a wrong value": {
			annotations: map[string]string{"KubeDevice/OnDeviceFailure": "evict"}, gpus: "1", mistakes: 1,
		},
		"a demand that is not read": {
			annotations: map[string]string{"KubeDevice/LeastEnforcement": "strong"}, gpus: "1",
			want: `annotation KubeDevice/LeastEnforcement: "strong" is none of hardware, policed, library, counted`,
		},
		"a demand": {annotations: map[string]string{"KubeDevice/LeastEnforcement": "policed"}, gpus: "1"},
		"a demand that is not read, of a pod that requests no devices": {
			annotations: map[string]string{"KubeDevice/LeastEnforcement": "strong"},
		},
		"a wrong value in a pod that requests no devices": {
			annotations: map[string]string{"KubeDevice/OnDeviceFailure": "evict"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Annotations: test.annotations},
				Spec:       corev1.PodSpec{NodeName: test.node, Containers: []corev1.Container{{Name: "main"}}},
			}
			if test.gpus != "" {
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
					"nvidia.com/gpu": apiresource.MustParse(test.gpus),
				}
			}
			reader := NewReader(allDevices{}, clock.RealClock{})
			for range 2 { // the second time from what is cached
				_, err := reader.Read(pod)
				if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
					t.Errorf("Read: %v, want %q", err, test.want)
				}
				if err != nil && !MayRequest(pod) {
					t.Error("the pod is skipped before it is read")
				}
			}
			if _, others := reader.Mistakes(pod); len(others) != test.mistakes {
				t.Errorf("mistakes %v, want %d", others, test.mistakes)
			}
		})
	}
}

func TestTheNumberOfReportedMistakesIsBounded(t *testing.T) {
	keys := map[string]string{}
	for i := range 10_000 {
		keys[fmt.Sprintf("KubeDevicf/DeviceInf%d", i)] = ""
	}
	if MisspelledRequest(keys) == nil {
		t.Error("none is found")
	}
	few := testing.AllocsPerRun(1, func() { mistakesOf(keys) })
	if most := float64(maxMistakes * 100); few > most {
		t.Errorf("looking at %d annotations takes %v allocations, want at most %v", len(keys), few, most)
	}
}
