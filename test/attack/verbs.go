// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
)

// verbs are what steps can do.
func verbs() map[string]verb {
	return map[string]verb{
		"create pod":             with(createPod),
		"request":                with(makeRequest),
		"may request":            with(mayRequest),
		"may soon request":       with(maySoonRequest),
		"change node":            with(changeNode),
		"let group label nodes":  with(letGroupLabelNodes),
		"seems held":             with(seemsHeld),
		"seems free":             with(seemsFree),
		"forge later generation": with(forgeLaterGeneration),
		"open more devices than": with(openMoreDevicesThan),
		"make ghost":             with(makeGhost),
		"be administrator":       with(beAdministrator),
		"await pod of job":       with(awaitPodOfJob),
		"has annotation":         with(hasAnnotation),
		"run victim":             with(runVictim),
		"delete pod":             with(deletePod),
		"create pod of many":     with(createPodOfMany),
		"bind role":              with(bindRole),
		"run as user":            with(runAsUser),
		"open path":              with(openPath),
		"read":                   with(readPage),
		// Programs of their own.
		"run while kubecri is away":      with(runWhileAway),
		"await end of container":         with(awaitEnd),
		"await that container stays":     with(awaitThatContainerStays),
		"require kubecri and stop it":    with(requireKubecri),
		"requests devices":               with(requestsDevices),
		"send too much":                  with(sendTooMuch),
		"send too much without bounds":   with(sendTooMuchWithoutBounds),
		"place scheduler":                with(placeScheduler),
		"publish address":                with(publishAddress),
		"hold enrolment":                 with(holdEnrolment),
		"restore pod":                    with(restorePod),
		"restore container":              with(restoreContainer),
		"register plugin":                with(registerPlugin),
		"register many plugins":          with(registerManyPlugins),
		"annotate containers":            with(annotateContainers),
		"report others' resources":       with(reportOthersResources),
		"report best devices":            with(reportBestDevices),
		"report others' devices":         with(reportOthersDevices),
		"report count":                   with(reportCount),
		"rewrite allocation":             with(rewriteAllocation),
		"crowd scheduler":                with(crowdScheduler),
		"fill list of containers":        with(fillListOfContainers),
		"flood with refusals":            with(floodWithRefusals),
		"load plugin":                    with(loadPlugin),
		"serve device plugin":            with(serveDevicePlugin),
		"start DRA driver":               with(startDRADriver),
		"remove annotation when refused": with(removeAnnotation),
		"forge seal":                     with(forgeSeal),
		"replay allocation":              with(replayAllocation),
		"change before start":            whole(changeBeforeStart),
		"create config map":              with(createConfigMap),
		// What came of it.
		"read config.json":      with(readConfigJSON),
		"await debug container": with(awaitDebugContainer),
		"await device":          with(awaitDevice),
		"await running":         with(awaitRunning),
		"await scheduled":       with(awaitScheduled),
		"read leniently":        with(readLeniently),
	}
}

// whole returns a verb without arguments that makes a whole attempt, and says itself what is a
// refusal: the API server's in its error is none.
func whole(try Try) verb {
	return with(func(ctx context.Context, p *trial, _ nothing) (Got, error) {
		got, err := try(ctx, p.Stage)
		if err != nil {
			err = errors.New(err.Error())
		}
		return got, err
	})
}

// createPod creates the attempt's pod.
func createPod(ctx context.Context, p *trial, _ nothing) (Got, error) {
	client, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	pod, err := p.manifest()
	if err != nil {
		return Got{}, err
	}
	p.created, err = client.CreatePod(ctx, pod)
	return Got{}, err
}

// manifest returns the attempt's pod. What its manifest does not say is as in a pod with a container
// main that is idle.
func (p *trial) manifest() (*corev1.Pod, error) {
	raw, err := json.Marshal(p.script.Pod)
	if err != nil {
		return nil, err
	}
	if raw, err = p.expand(raw); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := strict(raw, pod); err != nil {
		return nil, err
	}
	pod.Namespace = p.namespace
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Image == "" {
				containers[i].Image = image.Busybox
			}
			if containers[i].Command == nil {
				containers[i].Command = clustertest.Idle
			}
		}
	}
	return pod, nil
}

// apiRequest are the arguments of a request to the API server.
type apiRequest struct {
	// Call is the method and the path, with the query.
	Call string `json:"call"`
	// Type is that of a patch: merge, json or apply. Empty means merge.
	Type string `json:"type"`
	// Body is an object or its text, or for PUT what is merged into the object that is there.
	Body any `json:"body"`
	// Impersonate is the user as whom the request is made.
	Impersonate string `json:"impersonate"`
}

// UnmarshalJSON implements json.Unmarshaler: a text is the call.
func (r *apiRequest) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &r.Call) == nil {
		return nil
	}
	type fields apiRequest
	return strict(raw, (*fields)(r))
}

// makeRequest makes a request to the API server.
func makeRequest(ctx context.Context, p *trial, request apiRequest) (Got, error) {
	_, err := p.send(ctx, request)
	return Got{}, err
}

// send makes a request to the API server, and returns what it answers.
func (p *trial) send(ctx context.Context, request apiRequest) ([]byte, error) {
	client, err := p.client(ctx)
	if err != nil {
		return nil, err
	}
	if request.Impersonate != "" {
		if client, err = client.As(request.Impersonate); err != nil {
			return nil, err
		}
	}
	method, path, _ := strings.Cut(request.Call, " ")
	rest := client.Discovery().RESTClient()
	body := request.Body
	if method == http.MethodPut {
		object := map[string]any{}
		admin := p.admin.Discovery().RESTClient() // reading it is no part of the attempt
		current, err := admin.Get().RequestURI(withoutSubresource(path)).DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(current, &object)
		}
		if err != nil {
			return nil, err
		}
		changes, _ := body.(map[string]any)
		body = merge(object, changes)
	}
	call := rest.Verb(method).RequestURI(path)
	if body != nil && body != "" {
		content, err := json.Marshal(body)
		if text, is := body.(string); is {
			content = []byte(text)
		}
		if err != nil {
			return nil, err
		}
		call = call.SetHeader("Content-Type", string(contentType(method, request.Type))).Body(content)
	}
	answer := call.Do(ctx)
	if err := answer.Error(); err != nil {
		return nil, err // with the refusal's text, which Raw does not have
	}
	return answer.Raw()
}

// contentType returns the type of a request's body.
func contentType(method, patch string) apitypes.PatchType {
	if method != http.MethodPatch {
		return "application/json"
	}
	switch patch {
	case "json":
		return apitypes.JSONPatchType
	case "apply":
		return apitypes.ApplyPatchType
	default:
		return apitypes.MergePatchType
	}
}

// withoutSubresource returns the path of an object.
func withoutSubresource(path string) string {
	for _, subresource := range []string{"/status", "/ephemeralcontainers"} {
		path = strings.TrimSuffix(path, subresource)
	}
	return path
}

// mayRequest makes a request that succeeds if the API server permits it, as it does where there is
// no such object.
func mayRequest(ctx context.Context, p *trial, request apiRequest) (Got, error) {
	if _, err := makeRequest(ctx, p, request); err != nil && !apierrors.IsNotFound(err) {
		return Got{}, err
	}
	return Got{Succeeds, "the API server permits it"}, nil
}

// maySoonRequest makes a request again until the API server permits it.
func maySoonRequest(ctx context.Context, p *trial, request apiRequest) (got Got, err error) {
	err = await.Until(ctx, "the right to "+request.Call, func(ctx context.Context) (bool, error) {
		if got, err = mayRequest(ctx, p, request); err == nil {
			return true, nil
		}
		if _, refused := asRefusal(err); refused {
			err = nil
		}
		return false, err
	})
	return got, err
}

// createConfigMap creates a ConfigMap with data, and so many keys with a number that all have one
// value.
func createConfigMap(ctx context.Context, p *trial, arguments struct {
	Name     string            `json:"name"`
	Data     map[string]string `json:"data"`
	Numbered struct {
		Count int    `json:"count"`
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"numbered"`
}) (Got, error) {
	client, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	data := both(arguments.Data, nil)
	for i := range arguments.Numbered.Count {
		data[fmt.Sprintf(arguments.Numbered.Key, i)] = arguments.Numbered.Value
	}
	_, err = client.CoreV1().ConfigMaps(p.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: arguments.Name}, Data: data,
	}, metav1.CreateOptions{})
	return Got{}, err
}

// runVictim runs a pod of somebody else's, to which the scheduler gives a device of the node
// scheduled: it is the attempt's device from then on.
func runVictim(ctx context.Context, p *trial, arguments struct {
	Annotations map[string]string `json:"annotations"`
}) (Got, error) {
	victim, err := p.victimThat(ctx, arguments.Annotations)
	if err != nil {
		return Got{}, err
	}
	p.created, p.device, p.card = victim.pod, victim.device, victim.card
	return Got{}, nil
}

// deletePod deletes the pod that was created last, and waits until it is gone.
func deletePod(ctx context.Context, p *trial, _ nothing) (Got, error) {
	return Got{}, p.admin.DeletePod(ctx, p.created)
}

// awaitDevice succeeds if a container of the pod can open the attempt's device.
func awaitDevice(ctx context.Context, p *trial, _ nothing) (Got, error) {
	return p.settle(ctx, p.created)
}

// awaitRunning succeeds if the pod runs.
func awaitRunning(ctx context.Context, p *trial, _ nothing) (Got, error) {
	_, got, err := p.awaitState(ctx, p.created)
	return got, err
}

// awaitDebugContainer waits until the pod's debug container runs.
func awaitDebugContainer(ctx context.Context, p *trial, _ nothing) (Got, error) {
	_, err := p.admin.AwaitPod(ctx, p.created, "to run its debug container", func(now *corev1.Pod) bool {
		statuses := now.Status.EphemeralContainerStatuses
		return len(statuses) > 0 && statuses[0].State.Running != nil
	})
	return Got{}, err
}

// awaitScheduled succeeds if the scheduler binds the pod.
func awaitScheduled(ctx context.Context, p *trial, _ nothing) (Got, error) {
	return p.isScheduled(ctx, p.created)
}

// readLeniently succeeds if encoding/json reads an allocation of the device in the pod's annotation.
func readLeniently(_ context.Context, p *trial, _ nothing) (Got, error) {
	pod, err := p.manifest()
	if err != nil {
		return Got{}, err
	}
	return lenient(pod.Annotations[deviceinfo.Annotation], string(p.card))
}
