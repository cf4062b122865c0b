# Sourced by ../run.sh: three customers. The third one's refund waits for a person.
ask() {
  echo "> $1" >&2
  "$muster" run --route "$1" --out "$out/$2"
}
ask "Where is order A1 and what is the return policy?" both
"$muster" export last >"$out/both.json"
echo "> blorp" >&2
unclear=$("$muster" submit --route "blorp")
"$muster" watch "$unclear" || echo "  (3: the customer is asked to be clearer, no worker was called)" >&2
"$muster" export "$unclear" >"$out/unclear.json"
"$muster" cancel "$unclear" >/dev/null
ask "The tea pot of order A2 arrived broken, I want my money back." refund || [ $? -eq 3 ]
"$muster" inbox
# On a terminal it is yours to decide; otherwise the example goes on.
if [ -t 0 ]; then
  read -r -p "approve this refund? [y/N] " said
else
  said=y
fi
case "$said" in
  y | Y) "$muster" approve last/complaint >/dev/null ;;
  *) "$muster" deny last/complaint "not this time" >/dev/null ;;
esac
"$muster" watch last
