{{/* One program's Deployment and PodDisruptionBudget. Takes root, role, name, port, resources, replicas (or nil), env (map), sandbox (bool), disruption (map). */}}
{{- define "muster.program" -}}
{{- $v := .root.Values -}}
{{- $image := index $v.images .role -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels: { app: {{ .name }}, app.kubernetes.io/part-of: muster, app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }} }
spec:
  {{- if not (kindIs "invalid" .replicas) }}
  replicas: {{ .replicas }}
  {{- end }}
  selector: { matchLabels: { app: {{ .name }} } }
  template:
    metadata:
      labels: { app: {{ .name }}, app.kubernetes.io/part-of: muster }
      annotations: { prometheus.io/scrape: "true", prometheus.io/port: {{ .port | quote }} }
    spec:
      terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
      automountServiceAccountToken: false
      {{- with $v.imagePullSecrets }}
      imagePullSecrets: {{ toJson . }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        {{- if .sandbox }}
        # bubblewrap makes namespaces and mounts: a profile of its own, and no AppArmor, which forbids mounts.
        seccompProfile: { type: Localhost, localhostProfile: {{ $v.worker.seccompProfile | quote }} }
        appArmorProfile: { type: Unconfined }
        {{- else }}
        seccompProfile: { type: RuntimeDefault }
        {{- end }}
      containers:
        - name: {{ .role }}
          image: "{{ $image.repository }}:{{ $image.tag | default .root.Chart.AppVersion }}"
          envFrom: [{ configMapRef: { name: muster } }, { secretRef: { name: {{ $v.secretName }} } }]
          {{- with .env }}
          env:
            {{- range $name, $value := . }}
            - { name: {{ $name }}, value: {{ $value | quote }} }
            {{- end }}
          {{- end }}
          ports: [{ name: http, containerPort: {{ .port }} }]
          readinessProbe: { httpGet: { path: /readyz, port: http }, periodSeconds: 5 }
          livenessProbe: { httpGet: { path: /healthz, port: http }, periodSeconds: 10, failureThreshold: 6 }
          resources: {{ toJson .resources }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: { drop: [ALL] }
          volumeMounts:
            - { name: blobs, mountPath: /var/lib/muster/blobs }
            - { name: scratch, mountPath: /var/lib/muster/scratch }
            - { name: tmp, mountPath: /tmp }
      volumes:
        - { name: blobs, persistentVolumeClaim: { claimName: {{ $v.blobs.existingClaim | default "muster-blobs" }} } }
        - { name: scratch, emptyDir: {} }
        - { name: tmp, emptyDir: {} }
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: { name: {{ .name }} }
spec:
  {{- toYaml .disruption | nindent 2 }}
  selector: { matchLabels: { app: {{ .name }} } }
{{- end }}

{{/* A ScaledObject on a lane's demand. Takes root, target, lane, slots, min, max. */}}
{{- define "muster.scaler" -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: { name: {{ .target }} }
spec:
  scaleTargetRef: { name: {{ .target }} }
  minReplicaCount: {{ .min }}
  maxReplicaCount: {{ .max }}
  pollingInterval: 5
  # Only for the step from one to zero.
  cooldownPeriod: 300
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        # A pod that goes drains: it gives back what it cannot finish. Rarely, and one at a time, costs least.
        scaleDown:
          stabilizationWindowSeconds: 300
          policies: [{ type: Pods, value: 1, periodSeconds: 60 }]
  triggers:
    - type: redis
      authenticationRef: { name: muster-redis }
      metadata:
        address: {{ .root.Values.redis.address | quote }}
        listName: {{ printf "%s:{s0}:dem:%s" .root.Values.redis.prefix .lane | quote }}
        listLength: {{ .slots | quote }}
        activationListLength: "0"
{{- end }}
