
// --------------------------------------------------------------------------------- 6. the host

const PLAYERS = new WeakMap(); // Streamlit calls the export again for new data and new themes

export default function mount({ data, parentElement, setStateValue }) {
  let player = PLAYERS.get(parentElement);
  if (!player) {
    player = new Player(parentElement.querySelector(".player"), setStateValue);
    PLAYERS.set(parentElement, player);
  }
  player.update(data);
  return () => {
    player.destroy();
    PLAYERS.delete(parentElement);
  };
}
